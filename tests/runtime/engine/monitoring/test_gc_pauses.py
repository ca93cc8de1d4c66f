"""The longest garbage collection of each process is a metric."""

from __future__ import annotations

import gc

from ramet.runtime.engine.monitoring.gc_pauses import GC_PAUSES
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.server import RunningServer


def test_the_longest_collection_is_an_engine_s_count() -> None:
    gc.collect()
    longest = GC_PAUSES.longest_s
    assert longest > 0
    gc.collect(0)
    with scripted_engine() as engine:
        assert engine.stats().longest_gc_pause_s >= longest


def test_both_processes_longest_collections_are_metrics(ok_server: RunningServer) -> None:
    gc.collect()
    text = ok_server.http.get("/metrics").text
    for name in ("ramet:longest_gc_pause_seconds", "ramet:server_longest_gc_pause_seconds"):
        (line,) = (each for each in text.splitlines() if each.startswith(name))
        assert float(line.rpartition(" ")[2]) > 0
