"""Traces for ``eviction.py``: made ones, and those that were recorded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ramet.runtime.engine.monitoring.cache_trace import TracedRequest, read_trace

PAGE_SIZE = 16
NEVER = 1 << 60

Tokens = list[list[int]]
"""Requests in order: the tokens of prompt and output."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request's pages as numbers: equal numbers, equal prefixes up to and with that page.

    The first ``num_looked_up`` are the prompt's; the others are written, not read. ``next_use``
    is for each page the next request that looks it up.
    """

    pages: tuple[int, ...]
    num_looked_up: int
    next_use: tuple[int, ...]
    hint: TracedRequest | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """Calls in the order in which they came."""

    calls: list[Call]
    num_distinct: int

    @property
    def has_hints(self) -> bool:
        """Whether programs gave hints of reuse."""
        hints = [call.hint for call in self.calls if call.hint is not None]
        return any(hint.remaining_uses is not None for hint in hints)

    @property
    def longest(self) -> int:
        """Most pages of a call."""
        return max(len(call.pages) for call in self.calls)

    @classmethod
    def of(
        cls,
        pages: Sequence[tuple[int, ...]],
        num_looked_up: Sequence[int],
        hints: Sequence[TracedRequest | None],
    ) -> Trace:
        """A trace of these paths; next uses are found here."""
        calls: list[Call] = []
        coming: dict[int, int] = {}
        for time in range(len(pages) - 1, -1, -1):
            path = pages[time]
            next_use = tuple(coming.get(page, NEVER) for page in path)
            calls.append(Call(path, num_looked_up[time], next_use, hints[time]))
            coming.update(dict.fromkeys(path[: num_looked_up[time]], time))
        return cls(calls[::-1], len({page for path in pages for page in path}))

    @classmethod
    def of_tokens(cls, requests: Tokens) -> Trace:
        """A trace of prompts."""
        numbers: dict[tuple[int, bytes], int] = {}
        pages: list[tuple[int, ...]] = []
        for tokens in requests:
            path, parent = [], -1
            for start in range(0, len(tokens) - PAGE_SIZE + 1, PAGE_SIZE):
                key = parent, np.array(tokens[start : start + PAGE_SIZE], np.int32).tobytes()
                parent = numbers.setdefault(key, len(numbers))
                path.append(parent)
            pages.append(tuple(path))
        return cls.of(pages, [len(path) for path in pages], [None] * len(pages))

    @classmethod
    def recorded(cls, path: Path) -> Trace:
        """A trace that ``--record-trace`` has written."""
        requests = [request for request in read_trace(path) if request.pages]
        size = PAGE_SIZE
        return cls.of(
            [request.pages for request in requests],
            [min((r.num_prompt_tokens - 1) // size, len(r.pages)) for r in requests],
            [request if request.program >= 0 else None for request in requests],
        )


def chats(rng: random.Random, num_requests: int = 1500) -> Tokens:
    """Conversations that take turns, under system prompts of which some are popular."""
    systems = [_text(rng, rng.randint(100, 600)) for _ in range(12)]
    live: list[list[int]] = []
    trace: Tokens = []
    while len(trace) < num_requests:
        if len(live) < 40 or rng.random() < 0.15:
            live.append(list(systems[min(int(rng.paretovariate(0.9)) - 1, 11)]))
        # The more recent a conversation, the likelier its next turn.
        index = len(live) - 1 - min(int(rng.expovariate(0.08)), len(live) - 1)
        talk = live.pop(index)
        talk += _text(rng, rng.randint(20, 150))
        trace.append(list(talk))
        if rng.random() < 0.8 and len(talk) < 4000:
            live.append(talk)
    return trace


def agents(rng: random.Random, num_requests: int = 1500) -> Tokens:
    """Programs: a long common beginning, a fork into branches, some tool turns in each, a join."""
    programs = [_text(rng, rng.randint(200, 1200)) for _ in range(6)]
    queues: list[list[list[int]]] = []
    trace: Tokens = []
    while len(trace) < num_requests:
        if len(queues) < 12:
            queues.append(_agent_run(rng, programs))
        queue = rng.choice(queues)
        trace.append(queue.pop(0))
        if not queue:
            queues.remove(queue)
    return trace


def _agent_run(rng: random.Random, programs: Sequence[list[int]]) -> list[list[int]]:
    prefix = rng.choice(programs) + _text(rng, rng.randint(30, 300))
    branches = []
    for _ in range(rng.randint(1, 4)):
        talk, turns = list(prefix), []
        for _ in range(rng.randint(1, 5)):
            talk = talk + _text(rng, rng.randint(30, 200))
            turns.append(talk)
        branches.append(turns)
    calls = [prefix]
    while any(branches):  # branches take turns at random, each in its own order
        branch = rng.choice([branch for branch in branches if branch])
        calls.append(branch.pop(0))
    calls.append(prefix + _text(rng, rng.randint(100, 400)))
    return calls


def scans(rng: random.Random, num_requests: int = 1500) -> Tokens:
    """Popular prefixes, disturbed by runs of long prompts that never come back."""
    popular = [_text(rng, rng.randint(200, 800)) for _ in range(20)]
    trace: Tokens = []
    while len(trace) < num_requests:
        for _ in range(rng.randint(5, 30)):
            base = popular[min(int(rng.paretovariate(0.7)) - 1, 19)]
            trace.append(base + _text(rng, rng.randint(10, 80)))
        trace.extend(_text(rng, rng.randint(500, 2000)) for _ in range(rng.randint(0, 8)))
    return trace[:num_requests]


def _text(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(50_000) for _ in range(length)]


MADE: dict[str, Callable[[random.Random, int], Tokens]] = {
    "chats": chats,
    "agents": agents,
    "scans": scans,
}
