"""Evicting cached prefixes: least recently used, Ramet's rule, and Belady's optimum.

    python benchmarks/eviction.py

Replays traces of requests against caches of several sizes, with no model, and prints the prompt
tokens that each rule had to compute again, over those of the optimum, which knows the whole future
(Belady 1966). Ramet's rule is the real ``RadixCache``, once without hints and once with each
prefix's next use said by ``expect`` and ``forget``. A recorded trace can be replayed with
``--trace FILE``: JSON lines, each a list of a request's token ids, prompt and output.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ramet.runtime.cache import PagePool, RadixCache

PAGE_SIZE = 16
NEVER = 1 << 60

Trace = list[list[int]]
"""Requests in order: the tokens of prompt and output."""


# -- traces ------------------------------------------------------------------------------------


def chats(rng: random.Random, num_requests: int = 1500) -> Trace:
    """Conversations that take turns, under system prompts of which some are popular."""
    systems = [_text(rng, rng.randint(100, 600)) for _ in range(12)]
    live: list[list[int]] = []
    trace: Trace = []
    while len(trace) < num_requests:
        if len(live) < 40 or rng.random() < 0.15:
            live.append(list(systems[min(int(rng.paretovariate(0.9)) - 1, 11)]))
        # Whoever spoke lately is the likelier to speak next.
        index = len(live) - 1 - min(int(rng.expovariate(0.08)), len(live) - 1)
        talk = live.pop(index)
        talk += _text(rng, rng.randint(20, 150))
        trace.append(list(talk))
        if rng.random() < 0.8 and len(talk) < 4000:
            live.append(talk)
    return trace


def agents(rng: random.Random, num_requests: int = 1500) -> Trace:
    """Programs: a long common beginning, a fork into branches, some tool turns in each, a join."""
    programs = [_text(rng, rng.randint(200, 1200)) for _ in range(6)]
    queues: list[list[list[int]]] = []
    trace: Trace = []
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


def scans(rng: random.Random, num_requests: int = 1500) -> Trace:
    """Popular prefixes, disturbed by runs of long prompts that never come back."""
    popular = [_text(rng, rng.randint(200, 800)) for _ in range(20)]
    trace: Trace = []
    while len(trace) < num_requests:
        for _ in range(rng.randint(5, 30)):
            base = popular[min(int(rng.paretovariate(0.7)) - 1, 19)]
            trace.append(base + _text(rng, rng.randint(10, 80)))
        trace.extend(_text(rng, rng.randint(500, 2000)) for _ in range(rng.randint(0, 8)))
    return trace[:num_requests]


def _text(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(50_000) for _ in range(length)]


# -- what each rule computes again -------------------------------------------------------------


@dataclass(slots=True)
class Paths:
    """Each request's pages as numbers: equal numbers, equal prefixes up to and with that page."""

    pages: list[list[int]]
    next_use: list[list[int]]  # of each request's pages, after that request
    num_distinct: int

    @classmethod
    def of(cls, trace: Trace) -> Paths:
        numbers: dict[tuple[int, bytes], int] = {}
        pages: list[list[int]] = []
        for tokens in trace:
            path, parent = [], -1
            for start in range(0, len(tokens) - PAGE_SIZE + 1, PAGE_SIZE):
                key = parent, np.array(tokens[start : start + PAGE_SIZE], np.int32).tobytes()
                parent = numbers.setdefault(key, len(numbers))
                path.append(parent)
            pages.append(path)
        last_seen: dict[int, int] = {}
        next_use: list[list[int]] = []
        for time in range(len(pages) - 1, -1, -1):
            next_use.append([last_seen.get(page, NEVER) for page in pages[time]])
            last_seen.update(dict.fromkeys(pages[time], time))
        return cls(pages, next_use[::-1], len(numbers))


def simulate(paths: Paths, capacity: int, rank: Callable[[int, int, int], float]) -> int:
    """Pages computed by a cache that evicts the greatest ``rank(time, next_use, depth)``.

    A request's own pages stay while it runs, as they must in any engine.
    """
    cached: dict[int, tuple[float, int]] = {}
    heap: list[tuple[float, int, int]] = []
    computed = 0
    for time, (path, uses) in enumerate(zip(paths.pages, paths.next_use, strict=True)):
        hit = 0
        while hit < len(path) and path[hit] in cached:
            hit += 1
        computed += len(path) - hit
        for depth, (page, use) in enumerate(zip(path, uses, strict=True)):
            entry = rank(time, use, depth), depth
            cached[page] = entry
            heapq.heappush(heap, (-entry[0], -depth, page))
        busy, spared = set(path), []
        while len(cached) > capacity:
            value, depth, page = heapq.heappop(heap)
            if cached.get(page) != (-value, -depth):
                continue
            if page in busy:
                spared.append((value, depth, page))
            else:
                del cached[page]
        for item in spared:
            heapq.heappush(heap, item)
    return computed


def ramet(trace: Trace, paths: Paths, capacity: int, *, hints: bool) -> int:
    """Pages computed by the real cache."""
    cache = RadixCache(PagePool(capacity, PAGE_SIZE))
    computed = 0
    for time, tokens in enumerate(trace):
        whole = len(tokens) // PAGE_SIZE * PAGE_SIZE
        handle = cache.match(tokens[:whole])
        hit = handle.matched_len // PAGE_SIZE
        node = handle.node
        if handle.matched_len % PAGE_SIZE and node.parent is not None:
            handle = type(handle)(node.parent, hit * PAGE_SIZE)
        cache.hold(handle)
        cache.use(handle)
        computed += whole // PAGE_SIZE - hit
        own = cache.allocate(whole // PAGE_SIZE - hit)
        assert own is not None, "a request larger than the cache"
        longer, _ = cache.insert(tokens[hit * PAGE_SIZE : whole], own, after=handle)
        cache.release(handle)
        if hints:
            _hint(cache, tokens, paths.next_use[time], time)
        del longer
    cache.check()
    return computed


def _hint(cache: RadixCache, tokens: list[int], next_use: list[int], time: int) -> None:
    """Says the next use of each part of a request's prefix, the deepest part first."""
    for depth in range(len(next_use), 0, -1):
        use = next_use[depth - 1]
        if depth < len(next_use) and next_use[depth] == use:
            continue
        handle = cache.match(tokens[: depth * PAGE_SIZE])
        if use == NEVER:
            cache.forget(handle)
        else:
            cache.expect(handle, 1, use - time)


def rows(traces: dict[str, Trace], shares: Sequence[float]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each trace and cache size."""
    for name, trace in traces.items():
        paths = Paths.of(trace)
        largest = max(len(path) for path in paths.pages)
        for share in shares:
            capacity = max(int(share * paths.num_distinct), largest + 1)
            best = simulate(paths, capacity, lambda _, use, __: float(use))
            lru = simulate(paths, capacity, lambda time, _, __: -float(time))
            blind = ramet(trace, paths, capacity, hints=False)
            told = ramet(trace, paths, capacity, hints=True)
            yield (
                name,
                f"{share:.0%}",
                f"{paths.num_distinct / best:.2f}",
                *(f"{value / best:.3f}" for value in (lru, blind, told)),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--trace", type=Path, help="a recorded trace, instead of the made ones")
    parser.add_argument("--share", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.4])
    options = parser.parse_args()
    if options.trace is not None:
        lines = options.trace.read_text().splitlines()
        traces = {options.trace.stem: [json.loads(line) for line in lines]}
    else:
        makers = (chats, agents, scans)
        traces = {make.__name__: make(random.Random(options.seed)) for make in makers}
    header = ("trace", "cache / pages", "least / optimum", "LRU", "no hints", "with hints")
    print(" | ".join(header))
    for row in rows(traces, options.share):
        print(" | ".join(row))


if __name__ == "__main__":
    main()
