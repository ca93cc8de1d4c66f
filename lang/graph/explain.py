"""Estimates a program's cost from its graph, before it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import CALL_KINDS, Gen, Select, Text

CountText = Callable[[str], int]


@dataclass(frozen=True)
class Explanation:
    """A program's cost as far as its graph shows.

    Attributes:
        graph: the graph; where it has open ends the numbers are of what comes before them.
        unit: what lengths are counted in: ``tokens``, or ``characters`` without a tokenizer. Text
            of the program is counted, the chat template's own isn't.
        num_calls: calls of the model.
        prompt_len: the program's own text in all prompts together.
        shared_len: how much of that stands in an earlier prompt too, so is computed once.
        output_len: the most that the calls can write; None where one has no limit.
        critical_path: the calls that wait for each other longest, by variable.
    """

    graph: RequestGraph
    unit: str
    num_calls: int
    prompt_len: int
    shared_len: int
    output_len: int | None
    critical_path: list[str]

    def __str__(self) -> str:
        share = f" ({self.shared_len / self.prompt_len:.0%})" if self.prompt_len else ""
        lines = [
            f"calls           {self.num_calls}",
            f"prompt text     {self.prompt_len} {self.unit}",
            f"  shared        {self.shared_len}{share}",
            "output at most  " + ("no limit" if self.output_len is None else str(self.output_len)),
            f"critical path   {' → '.join(self.critical_path) or 'none'}",
        ]
        lines += [
            f"open            {end.where} {self.graph.reason_of(end)}"
            for end in self.graph.open_ends
        ]
        return "\n".join(lines)


def explain(graph: RequestGraph, count: CountText | None = None) -> Explanation:
    """Adds up a graph. ``count`` is the length of a text; None counts characters."""
    measure = count or len
    lengths = {
        node.id: sum(measure(part) for part in node.parts if isinstance(part, str))
        for node in graph
        if isinstance(node, Text)
    }
    used: set[str] = set()
    prompt_len = 0
    for call in graph.calls():
        texts = [node.id for node in graph.back_from(call.parent) if node.id in lengths]
        prompt_len += sum(lengths[node_id] for node_id in texts)
        used.update(texts)
    limits = [_limit(call, measure) for call in graph.calls()]
    return Explanation(
        graph=graph,
        unit="characters" if count is None else "tokens",
        num_calls=len(limits),
        prompt_len=prompt_len,
        shared_len=prompt_len - sum(lengths[node_id] for node_id in used),
        output_len=None if None in limits else sum(limit or 0 for limit in limits),
        critical_path=critical_path(graph),
    )


def critical_path(graph: RequestGraph) -> list[str]:
    """The variables of the longest chain of calls that wait for each other, by output length."""
    best: dict[str, tuple[int, str | None]] = {}  # how long until the node is done, after which
    last: str | None = None
    for node in graph:
        if isinstance(node, Text):
            continue
        before = max(
            (needed for needed in graph.needs(node.id) if needed in best),
            key=lambda needed: best[needed][0],
            default=None,
        )
        own = (_limit(node, len) or 1) if isinstance(node, CALL_KINDS) else 0
        best[node.id] = (own + (best[before][0] if before is not None else 0), before)
        if last is None or best[node.id][0] > best[last][0]:
            last = node.id
    path = []
    while last is not None:
        if isinstance(graph[last], CALL_KINDS):
            path.append(graph[last].label)
        last = best[last][1]
    return path[::-1]


def _limit(call: Gen | Select, measure: CountText) -> int | None:
    if isinstance(call, Gen):
        return call.params.max_tokens
    return max(
        sum(measure(part) for part in choice if isinstance(part, str)) for choice in call.choices
    )
