"""Full garbage collections are run between steps, never during one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator, Mapping

import pytest

from ramet.grammars import JsonSchema
from ramet.kernels.sampling.reference import sample_reference
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.engine.monitoring import idle_collector
from ramet.runtime.engine.monitoring.gc_pauses import GC_PAUSES
from ramet.runtime.engine.monitoring.idle_collector import IdleCollector
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.server import wait_until


class Node:
    """An object in a cycle, which reference counts never free."""

    def __init__(self) -> None:
        self.me = self


class WastefulModel(ScriptedModel):
    """Makes garbage in each step, enough for Python to collect all generations."""

    in_step = False

    def run(self, batch, overlap=None):
        self.in_step = True
        for _ in range(20_000):
            Node()
        try:
            return super().run(batch, overlap)
        finally:
            self.in_step = False


@pytest.fixture
def collector() -> Iterator[IdleCollector]:
    thresholds = gc.get_threshold()
    collector = IdleCollector()
    collector.start()
    yield collector
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.parametrize("controlled", [True, False])
def test_no_full_collection_runs_during_steps(tokenizer, collector, controlled: bool) -> None:
    model = WastefulModel(tokenizer, (), sample=sample_reference)
    full: list[bool] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append(model.in_step)

    if not controlled:  # as Python does it: shows that there is something to prevent
        gc.set_threshold(700, 10, 10)
    gc.callbacks.append(note)
    try:
        with Engine(model, tokenizer) as engine:
            if controlled:
                engine.collect_when_idle(collector)
            params = SamplingParams(max_tokens=40, ignore_eos=True)
            engine.submit(Request(prompt_token_ids=(1, 2, 3), params=params)).result()
            if controlled:
                wait_until(lambda: len(full) > 0)
    finally:
        gc.callbacks.remove(note)
    assert any(full) is not controlled


def test_compiled_grammars_are_left_out_of_later_collections(tokenizer, collector) -> None:
    constraint = JsonSchema({"enum": [[f"{i}", {"n": i}] for i in range(50)]})
    model = ScriptedModel(tokenizer, (), sample=sample_reference)
    with Engine(model, tokenizer) as engine:
        engine.collect_when_idle(collector)
        before = gc.get_freeze_count()
        engine.compile(constraint).result()
        wait_until(lambda: gc.get_freeze_count() > before + 100)


def test_garbage_among_frozen_objects_is_found_when_all_are_collected(
    collector: IdleCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node()
    gone = weakref.ref(node)
    gc.freeze()
    del node
    gc.collect()
    assert gone() is not None
    monkeypatch.setattr(idle_collector, "_MOST_SURVIVORS", 0)
    monkeypatch.setattr(collector, "_num_frozen", 0)
    assert collector.wants_all
    collector.collect_all()
    assert gone() is None
    assert not collector.wants_all


def test_a_full_collection_is_run_in_any_case_when_it_is_overdue(
    collector: IdleCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_collector, "_OVERDUE", 5)
    gc.collect()
    assert not collector.collect(idle=False)
    kept = [[] for _ in range(60_000)]
    assert collector.collect(idle=False)
    assert not collector.collect(idle=True)
    assert len(kept) == 60_000


def test_pauses_of_the_start_do_not_count(monkeypatch) -> None:
    thresholds = gc.get_threshold()
    monkeypatch.setattr(GC_PAUSES, "longest_s", 1.0)
    monkeypatch.setattr(gc, "enable", lambda: None)
    try:
        IdleCollector().start()
        assert GC_PAUSES.longest_s < 1.0
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
