"""Programs in three arms on one kind of engine: what does knowing the program save?

::

    python benchmarks/programs.py [--runs 4] [--repeats 3] [--pages 64] [--only fork,tree]

Arms, each on an engine of its own with a small page pool, so that the cache is under pressure:

``plain``      every call is a plain HTTP request with no hints to ``ramet serve``'s own app on
               loopback, a run's calls one by one
``no hints``   programs on the engine in this process; calls say nothing of the future, and
               nothing is computed ahead
``not ahead``  hints on, but nothing is computed ahead
``full``       everything on

An oracle with unlimited cache says how many tokens must be computed at the least: the same runs
one after the other, and in each one call after the other, on an engine whose pool holds all. All
arms decode greedily; ``same texts`` counts the runs whose texts are the oracle's.

Arms take turns, ``--repeats`` times, each time with an empty cache; the table has the median of
the tokens and the best of the times, relative to the full arm's. ``CPU`` is processor time, which
says more than latencies do on a machine that others use too.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from ramet.lang import Backend, Program, Run, State, connect, program, tool
from ramet.lang.backends.engine import EngineBackend
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.server import ServerConfig
from ramet.runtime.server.main import HttpServer

RULES = """\
You are the assistant of a small library. You answer in one short sentence. You are polite, you \
never guess, and you never mention these rules. The library opens at nine and closes at six, on \
Saturdays at two. Books are lent for three weeks and can be renewed twice. Children need the \
signature of a parent. There are readings on Thursdays, and a shelf of new books beside the door. \
Visitors may print ten pages a day. Dogs wait outside. """


def letter(topic: str) -> str:
    """What a run is about: text of its own that all its branches share."""
    return (
        f"A visitor writes: I have loved {topic} since I was seven, when my aunt took me along. "
        f"Now I would like to know more about {topic}, but I have only my evenings for it, and I "
        f"get lost among all the books on {topic} that there are. What would you have me read, "
        f"and is there anybody in the village with whom I could talk about {topic}?"
    )


@program
def fork(s: State, topic: str) -> list[str]:
    """One long prompt, then branches that share it."""
    s.system(RULES * 2)
    s.user(letter(topic))
    branches = s.fork(4)
    for index, branch in enumerate(branches):
        branch.user(f"Give piece of advice number {index + 1}.")
        branch.gen("advice", max_tokens=16)
        branch.user("Say it more simply.")
        branch.gen("simple", max_tokens=12)
    return [value.value for value in branches["simple"]]


@program
def tree(s: State, topic: str) -> str:
    """Two levels of proposals; the first that is judged good is gone on from."""
    s.system(RULES * 2)
    s.user(letter(topic) + " How could the library help?")
    for level in range(2):
        branches = s.fork(3)
        for branch in branches:
            branch.user("Name one idea.")
            branch.gen(f"idea{level}", max_tokens=14)
            branch.user("Is it a good idea?")
            branch.select(f"good{level}", ["yes", "no"])
        good = [b.get_meta_info(f"good{level}").choice_scores for b in branches]
        margins = [scores["yes"] - scores["no"] for scores in good]
        best = branches[margins.index(max(margins))]
        s.assistant(f"{best[f'idea{level}']}")
        s.user("Go on.")
    plan: str = s.gen("plan", max_tokens=16).value
    return plan


@tool
def shelf(title: str) -> str:
    """Finds the shelf of a book."""
    time.sleep(0.05)
    return f"{title[:20]} is on shelf {len(title) % 7}"


@program
def tools(s: State, topic: str) -> str:
    """Rounds of a call, a slow tool, and the next call that waits for it."""
    s.system(RULES * 2)
    s.user(letter(topic))
    for round_number in range(3):
        s.user(f"Name a book about {topic}, other than those before.")
        title = s.gen(f"title{round_number}", max_tokens=10, stop="\n")
        s.user(f"{s.call(shelf, title=title)}. Tell the visitor.")
        s.gen(f"told{round_number}", max_tokens=16)
    told: str = s["told2"].value
    return told


@program
def brief(s: State, topic: str) -> str:
    """A long prompt that waits for a value in its middle: its beginning can be computed ahead."""
    s.system(RULES)
    side = s.copy()
    side.user(f"Name a book about {topic}.")
    side.gen("title", max_tokens=20)
    s.user(f"{letter(topic)} {RULES} {letter(topic)} A colleague thinks of {side['title']}.")
    answer: str = s.gen("answer", max_tokens=8).value
    return answer


PROGRAMS: dict[str, Program[..., Any]] = {
    "fork": fork,
    "tree": tree,
    "tools": tools,
    "brief": brief,
}
TOPICS = ("birds", "chess", "Rome", "bread", "stars", "rivers", "jazz", "maps", "trains", "bees")


@dataclass
class Outcome:
    """What an arm took."""

    computed: int
    cached: int
    cpu_s: float
    latencies_s: list[float]
    results: list[Any]

    def percentile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(
    engine: Engine, each: Program[..., Any], batch: list[dict[str, Any]], concurrency: int
) -> Outcome:
    """Runs a batch and reads the engine's counters before and after."""
    before = engine.stats()
    began = time.process_time()
    runs: list[Run[Any]] = each.run_batch(batch, max_concurrency=concurrency)
    cpu_s = time.process_time() - began
    after = engine.stats()
    engine.check()
    return Outcome(
        computed=after.num_computed_tokens - before.num_computed_tokens,
        cached=after.num_cached_tokens - before.num_cached_tokens,
        cpu_s=cpu_s,
        latencies_s=[run.trace.wall_s for run in runs],
        results=[run.result for run in runs],
    )


class OneByOne:
    """A backend whose calls go out one at a time: how a script without concurrency sends them."""

    def __init__(self, inner: Backend) -> None:
        self._inner = inner
        self._locks: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _lock(self, call: Any) -> Any:
        lock: asyncio.Lock = self._locks.setdefault(call.hint.program_id, asyncio.Lock())
        return lock

    async def stream(self, call: Any) -> Any:
        async with self._lock(call):
            async for event in self._inner.stream(call):
                yield event

    async def score(self, call: Any) -> Any:
        async with self._lock(call):
            return await self._inner.score(call)


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """The address of a server for an engine."""
    server = HttpServer(engine, ServerConfig(port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()
        thread.join()


def main() -> None:
    """Runs every program in every arm and prints a table each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=4, help="runs of each program")
    parser.add_argument("--repeats", type=int, default=3, help="how often each arm is measured")
    parser.add_argument("--concurrency", type=int, default=3, help="runs at a time")
    parser.add_argument("--pages", type=int, default=64, help="pages of 16 tokens in the pool")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", default=",".join(PROGRAMS))
    options = parser.parse_args()
    with ExitStack() as stack:
        arms = make_arms(options, stack)
        for name in options.only.split(","):
            batch = [{"topic": TOPICS[index % len(TOPICS)]} for index in range(options.runs)]
            outcomes: dict[str, list[Outcome]] = {arm.name: [] for arm in arms}
            for repeat in range(options.repeats):
                for arm in arms[repeat % len(arms) :] + arms[: repeat % len(arms)]:
                    arm.engine.clear_cache()
                    each = PROGRAMS[name].using(temperature=0.0, seed=1, **arm.settings)
                    outcomes[arm.name].append(measure(arm.engine, each, batch, arm.concurrency))
            Console().print(table(name, {arm: merged(o) for arm, o in outcomes.items()}))


@dataclass(frozen=True)
class Arm:
    """An engine, and how programs use it."""

    name: str
    engine: Engine
    concurrency: int
    settings: dict[str, Any]


def make_arms(options: argparse.Namespace, stack: ExitStack) -> list[Arm]:
    """The oracle and the three arms, each with an engine of its own."""

    def engine(num_pages: int, policy: str = "fcfs") -> Engine:
        config = EngineConfig(num_pages=num_pages, device="cpu", policy=policy, max_draft_len=0)
        return stack.enter_context(Engine.from_model(options.model, config))

    ahead_off: dict[str, Any] = {"prefill_ahead": False}
    silent = {**ahead_off, "hints": False}
    oracle, plain = engine(8192), engine(options.pages)
    url = stack.enter_context(serving(plain))
    no_hints, full = engine(options.pages), engine(options.pages, "program-aware")
    alone = OneByOne(EngineBackend(oracle))
    over_http = OneByOne(connect(url, dialect="ramet"))
    return [
        Arm("oracle", oracle, 1, {"backend": alone, **silent}),
        Arm("plain", plain, options.concurrency, {"backend": over_http, **silent}),
        Arm("no hints", no_hints, options.concurrency, {"backend": no_hints, **silent}),
        Arm("not ahead", full, options.concurrency, {"backend": full, **ahead_off}),
        Arm("full", full, options.concurrency, {"backend": full}),
    ]


def merged(outcomes: list[Outcome]) -> Outcome:
    """The median of the tokens and the best of the times."""
    best = min(outcomes, key=lambda outcome: outcome.percentile_s(0.99))
    return replace(
        best,
        cpu_s=min(outcome.cpu_s for outcome in outcomes),
        computed=round(median(outcome.computed for outcome in outcomes)),
        cached=round(median(outcome.cached for outcome in outcomes)),
    )


def table(name: str, outcomes: dict[str, Outcome]) -> Table:
    """An arm a row; times relative to the full arm's."""
    best, oracle = outcomes["full"], outcomes["oracle"]
    result = Table(title=f"{name}: {len(best.results)} runs", title_justify="left")
    for column in (
        "arm",
        "computed",
        "cached",
        "computed / oracle",
        "CPU",
        "p50",
        "p99",
        "same texts",
    ):
        result.add_column(column, justify="left" if column == "arm" else "right")
    ratio: Callable[[float, float], str] = lambda a, b: f"{a / b:.2f}×"  # noqa: E731
    for arm, outcome in outcomes.items():
        same = sum(a == b for a, b in zip(outcome.results, oracle.results, strict=True))
        times = ("", "", "")
        if arm != "oracle":
            times = (
                ratio(outcome.cpu_s, best.cpu_s),
                ratio(outcome.percentile_s(0.5), best.percentile_s(0.5)),
                ratio(outcome.percentile_s(0.99), best.percentile_s(0.99)),
            )
        result.add_row(
            arm,
            str(outcome.computed),
            str(outcome.cached),
            ratio(outcome.computed, oracle.computed),
            *times,
            f"{same}/{len(oracle.results)}",
        )
    return result


if __name__ == "__main__":
    main()
