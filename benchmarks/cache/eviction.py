"""Evicting cached prefixes: least recently used, Ramet's rule, and Belady's optimum.

    python benchmarks/cache/eviction.py

Replays traces of requests against caches of several sizes, with no model, and prints the prompt
pages that each rule had to compute, over those of the optimum, which knows the whole future
(Belady 1966). Ramet's rule is the real ``RadixCache``: without hints, with what the programs of a
recorded trace said themselves, and with each prefix's next use said by ``expect`` and ``forget``.
Replayed are synthetic traces, those that ``record_traces.py`` has recorded in ``traces``, and with
``--trace FILE`` one that ``ramet serve --record-trace FILE`` has written.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from eviction_traces import MADE, NEVER, Call, Trace

from ramet.runtime.cache import PagePool, PrefixHandle, RadixCache

TRACES = Path(__file__).parent / "traces"

HintSource = Callable[[RadixCache, PrefixHandle, int, Call, int], None]
"""Updates a cache's hints after a call: (cache, the call's prefix, how many of its pages were
cached before, the call, time)."""


def replay(trace: Trace, capacity: int, rank: Callable[[int, int], float]) -> int:
    """Pages computed by a cache that evicts the greatest ``rank(time of last use, next use)``.

    A request's own pages stay while it runs, as they must in any engine.
    """
    cached: dict[int, tuple[float, int]] = {}
    heap: list[tuple[float, int, int]] = []
    computed = 0
    for time, call in enumerate(trace.calls):
        hit = 0
        while hit < call.num_looked_up and call.pages[hit] in cached:
            hit += 1
        computed += call.num_looked_up - hit
        for depth, (page, use) in enumerate(zip(call.pages, call.next_use, strict=True)):
            entry = rank(time, use), depth
            cached[page] = entry
            heapq.heappush(heap, (-entry[0], -depth, page))
        busy, spared = set(call.pages), []
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


def optimum(trace: Trace, capacity: int) -> int:
    """Pages computed with the farthest next use evicted first."""
    return replay(trace, capacity, lambda _, next_use: float(next_use))


def least_recent(trace: Trace, capacity: int) -> int:
    """Pages computed with the least recently used evicted first."""
    return replay(trace, capacity, lambda last_use, _: -float(last_use))


def ramet(trace: Trace, capacity: int, hints: HintSource | None = None) -> int:
    """Pages computed by the real cache. A page's number is its one token here."""
    cache = RadixCache(PagePool(capacity, 1))
    computed = 0
    for time, call in enumerate(trace.calls):
        handle = cache.match(call.pages[: call.num_looked_up])
        hit = handle.matched_len
        cache.hold(handle)
        cache.use(handle)
        computed += call.num_looked_up - hit
        own = cache.allocate(len(call.pages) - hit)
        assert own is not None, "a request larger than the cache"
        longer, _ = cache.insert(call.pages[hit:], own, after=handle)
        cache.release(handle)
        if hints is not None:
            hints(cache, longer, hit, call, time)
    return computed


def tell_all(cache: RadixCache, _: PrefixHandle, __: int, call: Call, time: int) -> None:
    """Announces the next use of each part of a call's prefix, the deepest part first."""
    uses = call.next_use
    for depth in range(len(uses), 0, -1):
        use = uses[depth - 1]
        if depth < len(uses) and uses[depth] == use:
            continue
        handle = cache.match(call.pages[:depth])
        if use == NEVER:
            cache.forget(handle)
        else:
            cache.expect(handle, 1, use - time)


class ProgramHints:
    """Announces each call's own hint, as the scheduler does."""

    def __init__(self, trace: Trace) -> None:
        programs: dict[int, list[int]] = {}
        for time, call in enumerate(trace.calls):
            if call.hint is not None:
                programs.setdefault(call.hint.program, []).append(time)
        self._num_live = [0] * len(trace.calls)
        for times in programs.values():
            for time in range(times[0], times[-1] + 1):
                self._num_live[time] += 1
        self._last_prompts: dict[int, tuple[int, ...]] = {}

    def __call__(
        self, cache: RadixCache, handle: PrefixHandle, hit: int, call: Call, time: int
    ) -> None:
        hint = call.hint
        if hint is None:
            return
        lasting_len = max(hit, self._common_len(hint.place, call.pages[: call.num_looked_up]))
        if hint.remaining_uses == 0:
            cache.forget(handle, keep_len=lasting_len)
        elif hint.steps_to_next_use is not None:
            ticks = (hint.steps_to_next_use + 1) * self._num_live[time]
            cache.expect(handle, hint.remaining_uses or 1, ticks)

    def _common_len(self, place: int, prompt: tuple[int, ...]) -> int:
        """The common prefix of the prompt and that of the program's last run."""
        if place < 0:
            return 0
        last = self._last_prompts.get(place, prompt)
        self._last_prompts[place] = prompt
        pairs = enumerate(zip(last, prompt, strict=False))
        return next((at for at, (a, b) in pairs if a != b), min(len(last), len(prompt)))


def rows(traces: dict[str, Trace], shares: Sequence[float]) -> Iterator[tuple[str, ...]]:
    """A line of the table for each trace and cache size."""
    for name, trace in traces.items():
        for share in shares:
            capacity = max(int(share * trace.num_distinct), trace.longest + 1)
            best = optimum(trace, capacity)
            blind = ramet(trace, capacity)
            hinted = ramet(trace, capacity, ProgramHints(trace)) if trace.has_hints else None
            known = ramet(trace, capacity, tell_all)
            yield (
                name,
                f"{share:.0%}",
                *(
                    "" if value is None else f"{value / best:.3f}"
                    for value in (least_recent(trace, capacity), blind, hinted, known)
                ),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=1500, help="of each made trace")
    parser.add_argument("--trace", type=Path, help="a recorded trace, and no other")
    parser.add_argument("--share", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.4])
    options = parser.parse_args()
    if options.trace is not None:
        traces = {options.trace.name: Trace.recorded(options.trace)}
    else:
        traces = {
            f"made: {name}": Trace.of_tokens(make(random.Random(options.seed), options.requests))
            for name, make in MADE.items()
        }
        for path in sorted(TRACES.glob("*.trace.gz")):
            traces[f"recorded: {path.name.split('.')[0]}"] = Trace.recorded(path)
    print("trace | cache / pages | LRU | no hints | programs' hints | all known")
    for row in rows(traces, options.share):
        print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
