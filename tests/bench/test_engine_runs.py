"""A run against an engine counts what it says it counts."""

from __future__ import annotations

import asyncio

import pytest

from ramet.bench.job import Job, Messages, Pace, Tokens, Workload
from ramet.bench.runner import run_workload
from ramet.bench.service_levels import ServiceLevels
from ramet.bench.summary import Summary, percentile, summarise
from ramet.bench.targets import EngineTarget, Outcome
from ramet.bench.workloads import Load
from ramet.bench.workloads.random_tokens import (
    Agents,
    FewShot,
    Json,
    MultiTurn,
    SharedPrefix,
    Tree,
)
from ramet.lang.base.errors import UsageError
from ramet.runtime.testing.scripted_engine import scripted_engine

ASCII = range(32, 96)
SMALL: tuple[Load, ...] = (
    SharedPrefix(groups=2, per_group=4, prefix_len=48, suffix_len=8, output_len=6),
    MultiTurn(chats=2, turns=3, prefix_len=48, suffix_len=8, output_len=6),
    Agents(agents=2, turns=3, prefix_len=48, suffix_len=8, output_len=6, tool_s=0.0),
    Tree(trees=1, branches=2, depth=2, prefix_len=48, suffix_len=8, output_len=6),
    FewShot(requests=4, prefix_len=48, suffix_len=8, output_len=2),
)


async def run(workload: Workload, target: EngineTarget) -> Summary:
    result = await run_workload(workload, target)
    return summarise(workload, target.name, result.outcomes, result.wall_s)


@pytest.mark.parametrize("load", SMALL, ids=lambda load: load.name)
async def test_a_prefix_cache_computes_the_least_there_is(load: Load) -> None:
    workload = load.build("0", ASCII)
    with scripted_engine() as engine:
        summary = await run(workload, EngineTarget(engine))
        engine.check()
    assert summary.errors == 0, summary.first_error
    assert summary.output_tokens == sum(job.num_output_tokens for job in workload.jobs)
    assert summary.tokens_least is not None
    # Branches that arrive together may each compute the last token before them.
    assert summary.tokens_computed == pytest.approx(summary.tokens_least, rel=0.05)
    assert 0 < summary.ttft.p50 <= summary.e2e.p50 <= summary.e2e.p99


async def test_without_a_cache_every_prompt_token_is_computed() -> None:
    with scripted_engine() as engine:
        summary = await run(SMALL[0].build("0", ASCII), EngineTarget(engine, use_cache=False))
    assert summary.hit_rate == 0
    assert summary.tokens_computed == summary.prompt_tokens == 8 * 56


async def test_outputs_under_a_schema_are_checked_against_it() -> None:
    workload = Json(requests=3, prompt_len=8).build("0", ASCII)
    with scripted_engine() as engine:
        summary = await run(workload, EngineTarget(engine))
    assert summary.valid == 1.0
    broken = [Outcome(text='{"name": 3}', num_prompt_tokens=1, num_output_tokens=1)] * 3
    assert summarise(workload, "t", broken, 1.0).valid == 0.0


async def test_a_job_that_fails_is_counted_and_named() -> None:
    jobs = (Job((40,), 10**9), Job((40,), 2), Job((41,), 2, after=0))
    with scripted_engine() as engine:
        summary = await run(Workload("w", jobs, Pace()), EngineTarget(engine))
    assert (summary.requests, summary.errors) == (3, 2)
    assert "maximum context length" in (summary.first_error or "")


class Held:
    """Answers nobody until enough jobs wait."""

    name = "held"

    def __init__(self, num_wanted: int) -> None:
        self.num_waiting = self.num_most = 0
        self.num_wanted = num_wanted
        self.released = asyncio.Event()

    async def check(self) -> None:
        pass

    async def send(self, job: Job, prompt: Tokens | Messages, *, want_token_ids: bool) -> Outcome:
        self.num_waiting += 1
        self.num_most = max(self.num_most, self.num_waiting)
        if self.num_waiting == self.num_wanted:
            self.released.set()
        await self.released.wait()
        self.num_waiting -= 1
        return Outcome(num_prompt_tokens=1, num_output_tokens=1)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("rate", "at_once"), [(None, 3), (5000.0, 20)])
async def test_an_open_loop_waits_for_no_end(rate: float | None, at_once: int) -> None:
    jobs = tuple(Job((number,), 1) for number in range(20))
    held = Held(at_once)
    ended: list[Outcome] = []
    pace = Pace(concurrency=3, rate=rate)
    result = await run_workload(Workload("w", jobs, pace), held, ended.append)
    assert len(result.outcomes) == len(ended) == 20
    assert held.num_most == at_once


def test_goodput_counts_requests_within_all_targets() -> None:
    levels = ServiceLevels.parse("ttft=0.5, tpot=0.1")
    quick = Outcome(event_times=[0.4], total_s=0.6, num_prompt_tokens=1, num_output_tokens=3)
    late = Outcome(event_times=[0.6], total_s=0.7, num_prompt_tokens=1, num_output_tokens=3)
    slow = Outcome(event_times=[0.4], total_s=0.8, num_prompt_tokens=1, num_output_tokens=3)
    failed = Outcome(error="x")
    workload = Workload("w", (Job((1,), 3),) * 4, Pace())
    summary = summarise(workload, "t", [quick, late, slow, failed], 2.0, levels, 3.6)
    assert summary.goodput == 0.5
    assert str(levels) == "ttft ≤ 0.5 s, tpot ≤ 0.1 s"
    # 3.6 dollars an hour for 2 seconds and 12 tokens
    assert summary.usd_per_million == pytest.approx(0.002 / 12 * 1e6)


@pytest.mark.parametrize("text", ["", "ttft", "ttft=x", "ttfb=1", "ttft=0", "ttft=nan"])
def test_a_wrong_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        ServiceLevels.parse(text)


def test_percentiles() -> None:
    assert [percentile([4.0, 1.0, 3.0, 2.0], q) for q in (0, 50, 100)] == [1.0, 3.0, 4.0]
    assert percentile([], 50) == 0.0
