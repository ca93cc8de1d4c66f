"""Programs in three arms on one kind of engine: what does knowing the program save?

::

    python benchmarks/programs/programs.py --runs 12 [--share 0.5] [--concurrency 6] [--only fork]

Arms, each on an engine of its own:

``plain``     every call is a plain HTTP request to ``ramet serve``'s own app on loopback, a run's
              calls one by one
``no hints``  programs on the engine in this process; calls say nothing of the future, and nothing
              is computed ahead
``full``      everything on
``no ahead``  (with ``--ablate``) hints on, but nothing is computed ahead
``no whole``  (with ``--ablate``) everything on, but calls are served in order of arrival, and
              programs not admitted as wholes
``no order``  (with ``--ablate``) everything on, but a batch's runs start in the batch's order

An oracle with unlimited cache says how many tokens must be computed at the least: the same runs
one after the other, and in each one call after the other, on an engine whose pool holds all. All
arms decode greedily; ``same texts`` counts the runs whose texts are the oracle's.

The arms' pools hold ``--share`` of the pages that the concurrent runs fill together on the oracle
(a single run's pages are printed, too, and are fewer): at 0.5 memory is short, at 1.5 it
suffices. Arms take turns, ``--repeats`` times, each time with an empty cache; the table has the
median of the tokens and the best of the times, relative to the full arm's. ``CPU`` is processor
time, which says more than latencies do on a machine that others use too.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from ramet.lang import Backend, Program, Run, State, connect, program, tool
from ramet.lang.backends.engine import EngineBackend
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.server.config import ServerConfig
from ramet.runtime.server.main import HttpServer

RULES = """\
You are the assistant of a small library. You answer in one short sentence. You are polite, you \
never guess, and you never mention these rules. The library opens at nine and closes at six, on \
Saturdays at two. Books are lent for three weeks and can be renewed twice. Children need the \
signature of a parent. There are readings on Thursdays, and a shelf of new books beside the door. \
Visitors may print ten pages a day. Dogs wait outside. """


def letter(topic: str) -> str:
    """The subject of a run: text of its own that all its branches share."""
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


@program
def ask(s: State, topic: str, question: str) -> str:
    """A question about a long text that many runs of a batch share, and that others don't."""
    s.system(RULES * 2)
    s.user(f"{letter(topic)} {letter(topic + ' and its history')} {question}")
    answer: str = s.gen("answer", max_tokens=8).value
    return answer


PROGRAMS: dict[str, Program[..., Any]] = {
    "fork": fork,
    "tree": tree,
    "tools": tools,
    "brief": brief,
    "ask": ask,
}
TOPICS = ("birds", "chess", "Rome", "bread", "stars", "rivers", "jazz", "maps", "trains", "bees")


def arguments(name: str) -> Iterator[dict[str, str]]:
    """A batch without end: other topics in every run, or four topics in turn for questions."""
    for number, adjective in enumerate(("", "old ", "small ", "famous ", "strange ")):
        for topic in TOPICS if name != "ask" else TOPICS[:4]:
            question = {"question": f"In one word, number {number}?"} if name == "ask" else {}
            yield {"topic": topic if name == "ask" else adjective + topic, **question}


@dataclass
class Outcome:
    """The cost of an arm."""

    computed: int
    cached: int
    cpu_s: float
    latencies_s: list[float]
    results: list[Any]

    def percentile_s(self, share: float) -> float:
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(arm: Arm, name: str, batch: list[dict[str, Any]]) -> Outcome:
    """Runs a batch and reads the engine's counters before and after."""
    each = PROGRAMS[name].using(temperature=0.0, seed=1, **arm.settings)
    before = arm.engine.stats()
    began = time.process_time()
    runs: list[Run[Any]] = each.run_batch(
        batch, max_concurrency=arm.concurrency, reorder=arm.reorder
    )
    cpu_s = time.process_time() - began
    after = arm.engine.stats()
    arm.engine.check()
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
        lock: asyncio.Lock = self._locks.setdefault(call.program_id, asyncio.Lock())
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
    parser.add_argument("--runs", type=int, default=12, help="runs of each program")
    parser.add_argument("--repeats", type=int, default=1, help="how often each arm is measured")
    parser.add_argument("--concurrency", type=int, default=6, help="runs at a time")
    parser.add_argument("--share", type=float, default=0.5, help="the pool's size; see above")
    parser.add_argument("--ablate", action="store_true", help="more arms; see above")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--only", default="fork,tree,tools", help=", ".join(PROGRAMS))
    options = parser.parse_args()
    with ExitStack() as stack:
        oracle = make_oracle(options, stack)
        for name in options.only.split(","):
            compare(name, oracle, options)


def compare(name: str, oracle: Arm, options: argparse.Namespace) -> None:
    """One program's table."""
    batch = list(islice(arguments(name), options.runs))
    one, together = (pages_filled(oracle, name, batch[:n]) for n in (1, options.concurrency))
    num_pages = max(round(options.share * together), one)
    outcomes: dict[str, list[Outcome]] = {"oracle": [measure(oracle, name, batch)]}
    with ExitStack() as stack:
        arms = make_arms(options, num_pages, stack)
        for repeat in range(options.repeats):
            for arm in arms[repeat % len(arms) :] + arms[: repeat % len(arms)]:
                arm.engine.clear_cache()
                outcomes.setdefault(arm.name, []).append(measure(arm, name, batch))
    title = (
        f"{name}: {options.runs} runs, {options.concurrency} at once; {num_pages} pages, of which "
        f"one run fills {one} and {options.concurrency} fill {together}"
    )
    Console().print(table(title, {arm: merged(o) for arm, o in outcomes.items()}))


@dataclass(frozen=True)
class Arm:
    """An engine, and how programs use it."""

    name: str
    engine: Engine
    concurrency: int
    settings: dict[str, Any]
    reorder: bool = True


NO_AHEAD: dict[str, Any] = {"prefill_ahead": False}
SILENT: dict[str, Any] = {"prefill_ahead": False, "hints": False}


def make_engine(
    options: argparse.Namespace, stack: ExitStack, num_pages: int, **config: Any
) -> Engine:
    """An engine with a pool of that size; without drafts, which would count as computed."""
    settings = EngineConfig(num_pages=num_pages, device="cpu", max_draft_len=0, **config)
    return stack.enter_context(Engine.from_model(options.model, settings))


def make_oracle(options: argparse.Namespace, stack: ExitStack) -> Arm:
    """Computes nothing twice."""
    engine = make_engine(options, stack, 8192)
    return Arm("oracle", engine, 1, {"backend": OneByOne(EngineBackend(engine)), **SILENT})


def make_arms(options: argparse.Namespace, num_pages: int, stack: ExitStack) -> list[Arm]:
    """The arms, each with an engine of its own."""

    def in_process(name: str, settings: dict[str, Any], **config: Any) -> Arm:
        engine = make_engine(options, stack, num_pages, **config)
        return Arm(name, engine, options.concurrency, {"backend": engine, **settings})

    plain = make_engine(options, stack, num_pages)
    url = stack.enter_context(serving(plain))
    over_http = {"backend": OneByOne(connect(url, dialect="ramet")), **SILENT}
    arms = [
        Arm("plain", plain, options.concurrency, over_http),
        in_process("no hints", SILENT),
        in_process("full", {}),
    ]
    if options.ablate:
        arms += [in_process("no ahead", NO_AHEAD), in_process("no whole", {}, policy="fcfs")]
        arms.append(replace(in_process("no order", {}), reorder=False))
    return arms


def pages_filled(oracle: Arm, name: str, batch: list[dict[str, Any]]) -> int:
    """How many pages runs leave in a cache that evicts nothing."""
    oracle.engine.clear_cache()
    measure(oracle, name, batch)
    stats = oracle.engine.stats()
    oracle.engine.clear_cache()
    return stats.num_pages - stats.num_free_pages


def merged(outcomes: list[Outcome]) -> Outcome:
    """The median of the tokens and the best of the times."""
    best = min(outcomes, key=lambda outcome: outcome.percentile_s(0.99))
    return replace(
        best,
        cpu_s=min(outcome.cpu_s for outcome in outcomes),
        computed=round(median(outcome.computed for outcome in outcomes)),
        cached=round(median(outcome.cached for outcome in outcomes)),
    )


def table(title: str, outcomes: dict[str, Outcome]) -> Table:
    """An arm a row; times relative to the full arm's, and tokens to the oracle's, if it's there."""
    measured = "oracle" if "oracle" in outcomes else "full"
    best, oracle = outcomes["full"], outcomes[measured]
    result = Table(title=title, title_justify="left")
    for column in (
        "arm",
        "computed",
        "cached",
        f"computed / {measured}",
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
