"""Workloads are reproducible, and a run against an engine counts what it says it counts."""

from __future__ import annotations

import dataclasses

import pytest

from ramet.bench.runner import Summary, median_ratio, percentile, run_workload
from ramet.bench.targets import EngineTarget
from ramet.bench.workloads import SCENARIOS, Job, Shape, Workload
from ramet.runtime.engine import EngineConfig
from ramet.runtime.testing.scripted_engine import scripted_engine

SMALL = Shape(
    groups=2, per_group=4, prefix_len=48, suffix_len=8, output_len=6, turns=3, concurrency=4
)


def ascii_prompts(workload: Workload) -> Workload:
    """The same work in the scripted model's small vocabulary."""
    jobs = [
        dataclasses.replace(job, prompt=tuple(32 + token % 64 for token in job.prompt))
        for job in workload.jobs
    ]
    return dataclasses.replace(workload, jobs=tuple(jobs))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_same_seed_gives_the_same_work(name: str) -> None:
    assert SCENARIOS[name]("s", SMALL) == SCENARIOS[name]("s", SMALL)
    assert SCENARIOS[name]("s", SMALL) != SCENARIOS[name]("t", SMALL)


def test_distinct_tokens_count_common_prefixes_once() -> None:
    jobs = (Job((1, 2, 3, 4), 1), Job((1, 2, 3, 5), 1), Job((1, 2), 1), Job((9,), 1))
    assert Workload("w", jobs, 1).num_distinct_prompt_tokens() == 4 + 1 + 0 + 1


@pytest.mark.parametrize("name", ["shared-prefix", "multi-turn"])
async def test_prompt_tokens_computed_are_the_distinct_ones(name: str) -> None:
    workload = ascii_prompts(SCENARIOS[name]("0", SMALL))
    with scripted_engine(config=EngineConfig()) as engine:
        summary = await run_workload(workload, EngineTarget(engine))
        engine.check()
    assert summary.errors == 0, summary.first_error
    assert summary.output_tokens == len(workload.jobs) * SMALL.output_len
    assert summary.tokens_computed == pytest.approx(summary.tokens_distinct, rel=0.01)


async def test_a_job_that_fails_is_counted_and_named() -> None:
    workload = Workload("w", (Job((40,), 10**9), Job((40,), 2)), 2)
    with scripted_engine() as engine:
        summary = await run_workload(workload, EngineTarget(engine))
    assert (summary.requests, summary.errors) == (2, 1)
    assert "maximum context length" in (summary.first_error or "")


def test_percentiles_and_ratios() -> None:
    assert [percentile([4.0, 1.0, 3.0, 2.0], q) for q in (0, 50, 100)] == [1.0, 3.0, 4.0]
    assert percentile([], 50) == 0.0
    zero = Summary("t", "s", *([0] * 2), 0.0, 1.0, *([0] * 5), *([0.0] * 8))
    double = dataclasses.replace(zero, output_tok_s=2.0)
    assert median_ratio([double, double], [zero, zero], "output_tok_s") == 2.0
