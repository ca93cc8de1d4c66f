"""Eviction against Belady's optimum, on small traces of the benchmark."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "benchmarks" / "eviction.py"


@pytest.fixture(scope="module")
def eviction():
    spec = importlib.util.spec_from_file_location("eviction_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["chats", "agents", "scans"])
def test_known_futures_are_near_the_optimum_and_unknown_ones_no_worse_than_lru(eviction, kind):
    trace = getattr(eviction, kind)(random.Random(3), 250)
    paths = eviction.Paths.of(trace)
    capacity = max(paths.num_distinct // 8, max(map(len, paths.pages)) + 1)
    best = eviction.simulate(paths, capacity, lambda _, use, __: float(use))
    lru = eviction.simulate(paths, capacity, lambda time, _, __: -float(time))
    assert eviction.ramet(trace, paths, capacity, hints=True) <= 1.05 * best
    assert eviction.ramet(trace, paths, capacity, hints=False) <= 1.001 * lru
