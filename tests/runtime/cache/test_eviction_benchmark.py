"""Eviction against Belady's optimum and least recent use, on the benchmark's traces."""

from __future__ import annotations

import importlib
import random
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks" / "cache"
SHARES = (0.05, 0.1, 0.2)


@pytest.fixture(scope="module")
def eviction():
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("eviction")
    sys.path.remove(str(BENCHMARKS))


def capacities(trace):
    return [max(int(share * trace.num_distinct), trace.longest + 1) for share in SHARES]


@pytest.mark.parametrize("kind", ["chats", "agents", "scans"])
def test_on_made_traces(eviction, kind):
    """The rule is never behind least recent use by more than noise, and over several not at all."""
    ratios = []
    for seed in range(3):
        trace = eviction.Trace.of_tokens(eviction.MADE[kind](random.Random(seed), 250))
        for capacity in capacities(trace):
            least_recent = eviction.least_recent(trace, capacity)
            ratios.append(eviction.ramet(trace, capacity) / least_recent)
            best = eviction.optimum(trace, capacity)
            assert eviction.ramet(trace, capacity, eviction.tell_all) <= 1.05 * best
    assert max(ratios) <= 1.01
    assert sum(ratios) / len(ratios) <= 1.0
    if kind == "scans":
        assert sum(ratios) / len(ratios) <= 0.97


@pytest.mark.parametrize(
    "path", sorted((BENCHMARKS / "traces").glob("*.trace.gz")), ids=lambda path: path.name
)
def test_on_recorded_traces(eviction, path):
    trace = eviction.Trace.recorded(path)
    assert len(trace.calls) > 100
    for capacity in capacities(trace):
        best = eviction.optimum(trace, capacity)
        assert eviction.ramet(trace, capacity) <= eviction.least_recent(trace, capacity)
        assert eviction.ramet(trace, capacity, eviction.tell_all) <= 1.05 * best
