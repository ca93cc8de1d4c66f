"""Compares two traces: their nodes' results and costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ramet.lang.trace.records import RunRecord

MAX_TEXT_LEN = 72
_CONTEXT_LEN = 12


@dataclass(frozen=True)
class Difference:
    """A node that gave something else; None where one of the runs has no text of it.

    ``name`` is its variable, or its kind where it has none.
    """

    node_id: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        lines = [f"{self.name} (node {self.node_id})"]
        start = _shared_len(self.before or "", self.after or "")
        for sign, text in (("-", self.before), ("+", self.after)):
            lines.append(f"  {sign} {_window(text, start)}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TraceDiff:
    """Two runs compared. It prints as a list of differences; true in an ``if`` where there are any.

    Attributes:
        differences: in the order of the nodes; the first is where the runs part.
        settings: what was given differently: the program, its seed, arguments or sampling.
        costs: tokens and calls of both runs, by name, where they differ.
    """

    differences: list[Difference]
    settings: dict[str, tuple[object, object]]
    costs: dict[str, tuple[int, int]]

    def __bool__(self) -> bool:
        return bool(self.differences)

    def __str__(self) -> str:
        lines = [f"{name}: {a!r} -> {b!r}" for name, (a, b) in self.settings.items()]
        lines += [str(difference) for difference in self.differences] or ["the same texts"]
        lines += [f"{name}: {a} -> {b}" for name, (a, b) in self.costs.items()]
        return "\n".join(lines)


def diff(a: RunRecord, b: RunRecord) -> TraceDiff:
    """Compares two runs node by node."""
    names = {record.node_id: record.name for trace in (b, a) for record in trace.calls}
    differences = [
        Difference(node_id, names.get(node_id, ""), a.texts.get(node_id), b.texts.get(node_id))
        for node_id in dict.fromkeys((*a.texts, *b.texts))
        if a.texts.get(node_id) != b.texts.get(node_id)
    ]
    given = [(t.program, t.backend, t.seed, t.arguments, t.sampling) for t in (a, b)]
    named = zip(("program", "backend", "seed", "arguments", "sampling"), *given, strict=True)
    costs = [dict(_costs(trace)) for trace in (a, b)]
    return TraceDiff(
        differences,
        {name: (before, after) for name, before, after in named if before != after},
        {name: (n, costs[1][name]) for name, n in costs[0].items() if n != costs[1][name]},
    )


def _costs(trace: RunRecord) -> Iterator[tuple[str, int]]:
    yield "calls", trace.num_calls
    yield "prompt tokens", trace.usage.prompt_tokens
    yield "output tokens", trace.usage.completion_tokens


def _shared_len(a: str, b: str) -> int:
    pairs = enumerate(zip(a, b, strict=False))
    return next((index for index, (x, y) in pairs if x != y), min(len(a), len(b)))


def _window(text: str | None, start: int) -> str:
    if text is None:
        return "no text"
    begin = max(0, start - _CONTEXT_LEN)
    end = begin + MAX_TEXT_LEN
    return f"{'... ' if begin else ''}{text[begin:end]!r}{' ...' if end < len(text) else ''}"
