"""Time to make and to combine regular languages, compared with interegular's automata.

    python benchmarks/grammars/automata.py

Ramet's automata are over UTF-8 bytes and minimal, interegular's over characters. Each pattern is
made into an automaton; then each pair of neighbours is intersected. Prints Ramet's CPU time over
interegular's, as the median of the patterns and for all of them together.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import interegular

from ramet.grammars.regular import Dfa, regex_dfa

PATTERNS = [
    r"[0-9]{3}-[0-9]{4}",
    r"[a-z]+(_[a-z0-9]+)*",
    r"(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?",
    r"[^/]+/[^/]+(/[^/]*)*",
    r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(\.(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])){3}",
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T[0-9]{2}:[0-9]{2}:[0-9]{2}Z",
    r"(foo|bar|baz|qux)(,(foo|bar|baz|qux)){0,10}",
    r"[a-zA-Z0-9._-]{1,20}@[a-z]{2,9}\.[a-z]{2,6}",
    r"(a|b)*a(a|b){5}",
]
_T = TypeVar("_T")
_LONG_S = 0.1


def timed(make: Callable[[], _T]) -> tuple[float, _T]:
    """Seconds of CPU, the least of three if they are short, and what was made."""
    least, made = float("inf"), None
    for _ in range(3):
        begin = time.thread_time()
        made = make()
        least = min(least, time.thread_time() - begin)
        if least > _LONG_S:
            break
    assert made is not None
    return least, made


def report(what: str, times: list[tuple[float, float]]) -> None:
    ours, theirs = (sum(column) for column in zip(*times, strict=True))
    median = statistics.median(a / b for a, b in times)
    print(f"{what:10} median {median:.3f}, all together {ours / theirs:.3f}")


def main() -> None:
    regex_dfa("a|b") & regex_dfa("b*")
    made: list[tuple[Dfa, interegular.FSM]] = []
    times = []
    for pattern in PATTERNS:
        ours, dfa = timed(lambda p=pattern: regex_dfa(p))
        theirs, fsm = timed(lambda p=pattern: interegular.parse_pattern(p).to_fsm())
        times.append((ours, theirs))
        made.append((dfa, fsm))
    report("make", times)
    times = []
    for (a, x), (b, y) in pairwise(made):
        ours, _ = timed(lambda a=a, b=b: a & b)
        theirs, _ = timed(lambda x=x, y=y: x & y)
        times.append((ours, theirs))
    report("intersect", times)


if __name__ == "__main__":
    main()
