"""Samples are rates between two readings, with percentiles of what ended between them."""

from __future__ import annotations

import dataclasses

import pytest

from ramet.runtime.api.events import Timings, Usage
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.server.observability.history import MAX_SAMPLES, EngineHistory
from ramet.runtime.server.observability.recent_timings import RecentTimings, percentiles
from ramet.runtime.testing.scripted_engine import scripted_engine


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def stats() -> EngineStats:
    with scripted_engine() as engine:
        return engine.stats()


def history(clock: Clock, timings: RecentTimings | None = None) -> EngineHistory:
    recent = timings or RecentTimings(clock)
    return EngineHistory(None, recent, clock=clock, wall_clock=clock)  # type: ignore[arg-type]


def test_a_sample_has_rates_since_the_last(clock: Clock, stats: EngineStats) -> None:
    recent = RecentTimings(clock)
    found = history(clock, recent)
    found.add(stats)
    assert found.since(0) == []
    clock.now += 1
    recent.add(Timings(0.0, 0.5, 1.5), Usage(completion_tokens=3))
    clock.now += 1
    found.add(
        dataclasses.replace(
            stats, num_steps=stats.num_steps + 6, num_output_tokens=stats.num_output_tokens + 20,
            num_prompt_tokens=stats.num_prompt_tokens + 8,
            num_cached_tokens=stats.num_cached_tokens + 6,
        )
    )  # fmt: skip
    (sample,) = found.since(0)
    assert (sample["steps_per_s"], sample["output_tokens_per_s"]) == (3, 10)
    assert (sample["hit_rate"], sample["requests_per_s"]) == (0.75, 0.5)
    assert sample["ttft"] == {"p50": 0.5, "p90": 0.5, "p99": 0.5}
    assert sample["tpot"]["p50"] == 0.5
    assert found.since(sample["time"]) == []


def test_a_new_engine_begins_again(clock: Clock, stats: EngineStats) -> None:
    found = history(clock)
    for num_steps in (9, 2, 4):
        found.add(dataclasses.replace(stats, num_steps=num_steps))
        clock.now += 2
    (sample,) = found.since(0)
    assert sample["steps_per_s"] == 1
    assert sample["ttft"] is None


def test_an_hour_is_kept(clock: Clock, stats: EngineStats) -> None:
    found = history(clock)
    for _ in range(MAX_SAMPLES + 10):
        found.add(stats)
        clock.now += 5
    samples = found.since(0)
    assert len(samples) == MAX_SAMPLES
    assert samples[-1]["time"] - samples[0]["time"] == 5 * (MAX_SAMPLES - 1)


def test_percentiles_leave_out_what_is_unknown() -> None:
    assert percentiles([None, 3.0, 1.0, 2.0]) == {"p50": 2.0, "p90": 3.0, "p99": 3.0}
    assert percentiles([None]) is None
