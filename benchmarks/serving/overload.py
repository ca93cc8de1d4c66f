"""Goodput under a burst, by scheduling policy, in simulated time.

    python benchmarks/serving/overload.py [--overload 1.5] [--requests 800] [--long-share 0.33]

The real scheduler and cache run on the scripted model; a step's duration is a linear function of
its tokens and rows (``STEP_S``). A share of the requests is long, with a TTFT target of 15 s; the
others are interactive, with a TTFT target of 1 s and a TPOT target of 40 ms. The rate is measured
first: what the server ends per second when all requests are there from the start. Requests then
arrive at 0.7 of that rate, the middle half of them at ``--overload`` times it (a Poisson process).
Goodput is the number of requests that met their targets per simulated second of arrivals.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from ramet.runtime.api.batch import Batch
from ramet.runtime.api.events import Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.scheduler import SchedulerConfig
from ramet.runtime.testing.simulation import Simulation

STEP_S = (0.004, 0.0001, 0.0002)
"""A step's fixed duration, a token's and a row's, in seconds."""

POLICIES = {
    "fcfs": {"policy": "fcfs"},
    "program-aware (default)": {},
    "slack": {"policy": "slack"},
    "slack, shed_late": {"policy": "slack", "shed_late": True},
}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request and when it comes, in seconds."""

    at: float
    request: Request


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of one run; times in seconds."""

    goodput: float
    ended: float
    shed: float
    ttft_p99: float
    computed: int


def step_s(batch: Batch) -> float:
    """A step's simulated duration."""
    fixed, a_token, a_row = STEP_S
    return fixed + a_token * batch.num_tokens + a_row * batch.num_rows


def make_requests(count: int, seed: int, long_share: float) -> Iterator[Request]:
    """A mixed load, without shared prefixes."""
    rng = random.Random(seed)
    for _ in range(count):
        is_long = rng.random() < long_share
        prompt = rng.randint(300, 700) if is_long else rng.randint(30, 100)
        yield Request(
            prompt_token_ids=tuple(rng.randrange(40, 200) for _ in range(prompt)),
            params=SamplingParams(temperature=0, max_tokens=rng.randint(20, 60), ignore_eos=True),
            ttft_target_s=15.0 if is_long else 1.0,
            tpot_target_s=None if is_long else 0.04,
        )


def simulation(**policy: object) -> Simulation:
    """A server of 32 sequences and 256 tokens a step."""
    config = SchedulerConfig(
        max_num_seqs=32,
        max_tokens_per_step=256,
        max_draft_len=0,
        **policy,  # type: ignore[arg-type]
    )
    return Simulation(config, num_pages=4096, page_size=16, step_s=step_s)


def rate_of(requests: Sequence[Request]) -> float:
    """Requests per second that the server can end."""
    sim = simulation(policy="fcfs")
    for request in requests:
        sim.add(request)
    sim.drain(1_000_000)
    return len(requests) / sim.now


def arrivals(count: int, seed: int, overload: float, long_share: float) -> list[Arrival]:
    """Requests with a burst in the middle half of them."""
    requests = list(make_requests(count, seed, long_share))
    capacity = rate_of(requests)
    rng, at = random.Random(f"{seed}/arrivals"), 0.0
    found = []
    for index, request in enumerate(requests):
        in_burst = count // 4 <= index < count * 3 // 4
        at += rng.expovariate(capacity * (overload if in_burst else 0.7))
        found.append(Arrival(at, request))
    return found


def run(load: Sequence[Arrival], **policy: object) -> Outcome:
    """The load under one policy."""
    sim = simulation(**policy)
    sequences, coming = [], list(reversed(load))
    while coming or not sim.scheduler.idle:
        if sim.scheduler.idle:
            sim.now = max(sim.now, coming[-1].at)
        while coming and coming[-1].at <= sim.now:
            arrival = coming.pop()
            sequences.append(sim.add(arrival.request))
        sim.step()
    sim.scheduler.check()
    stats = sim.scheduler.stats
    ended = sum(isinstance(sim.events[each][-1], Finished) for each in sequences)
    ttfts = sorted(
        each.first_token_time - each.submit_time
        for each in sequences
        if each.first_token_time is not None
    )
    return Outcome(
        goodput=stats.num_good / load[-1].at,
        ended=ended / len(load),
        shed=stats.ends["target_unreachable"] / len(load),
        ttft_p99=ttfts[int(0.99 * (len(ttfts) - 1))],
        computed=stats.num_computed_tokens,
    )


def main() -> None:
    """Prints a row per policy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--overload", type=float, default=1.5)
    parser.add_argument("--requests", type=int, default=800)
    parser.add_argument("--long-share", type=float, default=0.33)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    totals: dict[str, list[Outcome]] = {name: [] for name in POLICIES}
    for seed in range(options.seeds):
        load = arrivals(options.requests, seed, options.overload, options.long_share)
        for name, policy in POLICIES.items():
            totals[name].append(run(load, **policy))
    today = sum(each.goodput for each in totals["program-aware (default)"])
    table = Table(title=f"a burst of {options.overload:g} times the capacity")
    for column in ("policy", "goodput / default's", "ended", "refused", "TTFT p99, s"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for name, outcomes in totals.items():
        goodput = sum(each.goodput for each in outcomes)
        table.add_row(
            name,
            f"{goodput / today:.2f}" if today else "–",
            f"{sum(each.ended for each in outcomes) / len(outcomes):.0%}",
            f"{sum(each.shed for each in outcomes) / len(outcomes):.0%}",
            f"{sum(each.ttft_p99 for each in outcomes) / len(outcomes):.2f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
