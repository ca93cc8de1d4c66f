"""Faults and aborts: each request gets its one answer, and nobody else notices."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from ramet.grammars import Regex
from ramet.runtime.api.errors import (
    DeadlineExceededError,
    EngineDeadError,
    InvalidParameterError,
    QueueFullError,
    RametError,
    RequestAbortedError,
)
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import Script

ENDLESS = [Script(["on and on "], repeat=True)]
LONG = SamplingParams(temperature=0)
SHORT = SamplingParams(temperature=0, max_tokens=5, ignore_eos=True)


def slow_compiler(engine: Engine, monkeypatch) -> threading.Event:
    """Makes compiling wait for the returned event."""
    go, compile_now = threading.Event(), engine._compiler.compile

    def compile_later(*constraint):
        assert go.wait(20)
        return compile_now(*constraint)

    monkeypatch.setattr(engine._grammars, "_compile", compile_later)
    return go


def test_a_runner_fault_fails_only_the_request_it_happens_to(make_engine):
    poison = 200

    def before_step(batch):
        if poison in batch.token_ids:
            raise MemoryError("no")

    engine = make_engine(before_step=before_step)
    good = [engine.submit(Request(prompt_token_ids=(70 + i,) * 9, params=SHORT)) for i in range(5)]
    bad = engine.submit(Request(prompt_token_ids=(70, poison), params=SHORT))
    for index, stream in enumerate(good):
        expected = engine._runner.continuation((70 + index,) * 9, 5)
        assert stream.result(timeout=20).token_ids == expected
    with pytest.raises(RametError, match="MemoryError"):
        bad.result(timeout=20)


def test_a_dead_runner_answers_everybody_and_refuses_the_next(make_engine):
    def before_step(batch):
        if len(batch.context_lens) == 3:
            raise EngineDeadError("the device is gone")

    engine = make_engine(ENDLESS, before_step=before_step, step_delay_s=0.002)
    streams = [engine.submit(Request(prompt_token_ids=(70 + i,), params=LONG)) for i in range(3)]
    for stream in streams:
        with pytest.raises(EngineDeadError):
            stream.result(timeout=20)
    assert isinstance(engine.error, EngineDeadError)
    with pytest.raises(EngineDeadError):
        engine.submit(Request(prompt_token_ids=(1,)))


def test_aborting_while_the_grammar_is_compiled(make_engine, monkeypatch):
    engine = make_engine()
    go = slow_compiler(engine, monkeypatch)
    request = Request(prompt_token_ids=(70,), params=SHORT, constraint=Regex("a+"))
    stream = engine.submit(request)
    assert engine.stats().num_compiling == 1
    stream.abort()
    with pytest.raises(RequestAbortedError):
        stream.result(timeout=10)
    assert engine.stats().num_compiling == 0
    go.set()
    assert engine.generate("x", SHORT, constraint=Regex("b+")).text.startswith("b")


def test_a_deadline_counts_while_the_grammar_is_compiled(make_engine, monkeypatch):
    engine = make_engine()
    go = slow_compiler(engine, monkeypatch)
    stream = engine.submit(
        Request(prompt_token_ids=(70,), params=SHORT, constraint=Regex("a+"), deadline_s=0.05)
    )
    with pytest.raises(DeadlineExceededError):
        stream.result(timeout=10)
    go.set()


def test_closing_while_a_grammar_is_compiled(make_engine, monkeypatch):
    engine = make_engine()
    go = slow_compiler(engine, monkeypatch)
    streams = [
        engine.submit(Request(prompt_token_ids=(70,), params=SHORT, constraint=Regex(f"a{{{n}}}")))
        for n in range(1, 4)
    ]
    threading.Timer(0.1, go.set).start()
    engine.close()
    for stream in streams:
        with pytest.raises(RametError):
            stream.result(timeout=10)


def test_a_matcher_fault_fails_only_its_request(make_engine, monkeypatch):
    engine = make_engine()

    class Broken:
        is_accepting = is_finished = False

        def fill_mask(self, row):
            raise RuntimeError("broken")

    class BrokenGrammar:
        def matcher(self):
            return Broken()

    monkeypatch.setattr(engine._grammars, "_compile", lambda *_: BrokenGrammar())
    good = engine.submit(Request(prompt_token_ids=(70,) * 5, params=SHORT))
    bad = engine.submit(Request(prompt_token_ids=(71,) * 5, params=SHORT, constraint=Regex("a")))
    assert len(good.result(timeout=10).tokens) == 5
    with pytest.raises(RametError, match="broken"):
        bad.result(timeout=10)


def test_a_fault_while_a_request_is_taken_in_is_its_own(make_engine, monkeypatch):
    engine = make_engine()
    assign = engine._scheduler._slots.assign

    def fail_on_seven(sequence):
        if sequence.token_ids[0] == 77:
            raise OverflowError("too large")
        assign(sequence)

    monkeypatch.setattr(engine._scheduler._slots, "assign", fail_on_seven)
    good = engine.submit(Request(prompt_token_ids=(70,) * 30, params=SHORT))
    bad = engine.submit(Request(prompt_token_ids=(77,) * 30, params=SHORT))
    assert len(good.result(timeout=10).tokens) == 5
    with pytest.raises(RametError, match="OverflowError"):
        bad.result(timeout=10)
    engine.check()


def test_a_reader_that_fails_affects_no_request(make_engine):
    engine = make_engine()

    def push(event):
        raise ValueError("this reader is broken")

    engine.submit_to(Request(prompt_token_ids=(70,) * 5, params=SHORT), push)
    assert len(engine.generate("x", SHORT).tokens) == 5


def test_a_full_queue_refuses_and_recovers(make_engine):
    config = EngineConfig(max_num_seqs=1, max_waiting=2)
    engine = make_engine(ENDLESS, config=config, step_delay_s=0.005)
    streams = []

    def flood() -> None:
        for i in range(10):
            streams.append(engine.submit(Request(prompt_token_ids=(70 + i,), params=LONG)))  # noqa: PERF401

    with pytest.raises(QueueFullError) as caught:
        flood()
    assert caught.value.retry_after_s >= 1
    for stream in streams:
        stream.abort()
    for stream in streams:
        with pytest.raises(RequestAbortedError):
            stream.result(timeout=10)
    assert len(engine.generate("x", SHORT).tokens) == 5


def test_one_id_cannot_run_twice(make_engine):
    engine = make_engine(ENDLESS, step_delay_s=0.005)
    request = Request(prompt_token_ids=(70,), params=LONG, request_id="mine")
    with engine.submit(request), pytest.raises(InvalidParameterError, match="mine"):
        engine.submit(request)
    time.sleep(0.1)
    assert len(engine.generate("x", SHORT).tokens) == 5


async def test_cancelling_the_waiter_aborts_the_request(make_engine):
    engine = make_engine(ENDLESS, step_delay_s=0.002)
    task = asyncio.create_task(engine.agenerate("x", LONG))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(100):
        if engine.stats().num_running == 0:
            break
        await asyncio.sleep(0.01)
    assert engine.stats().num_running == 0


async def test_hundreds_of_streams_with_random_aborts_end_once_each(make_engine):
    engine = make_engine(
        config=EngineConfig(max_num_seqs=16, max_tokens_per_step=64), num_pages=128
    )

    async def call(number: int) -> str:
        params = SamplingParams(temperature=0, max_tokens=1 + number % 30, ignore_eos=True)
        prompt = (65 + number % 7,) * (1 + number % 90)
        constraint = Regex("[a-z]{3,20}") if number % 5 == 0 else None
        stream = engine.submit(
            Request(prompt_token_ids=prompt, params=params, constraint=constraint)
        )
        if number % 3 == 0:
            stream.abort()
        ends = [event async for event in stream if isinstance(event, Finished | Failed)]
        assert len(ends) == 1
        return type(ends[0]).__name__

    outcomes = await asyncio.gather(*(call(number) for number in range(300)))
    assert outcomes.count("Finished") >= 190
    stats = engine.stats()
    assert stats.num_running == stats.num_waiting == stats.num_compiling == 0


def test_a_loop_that_closed_stops_nobody(make_engine):
    engine = make_engine(ENDLESS, step_delay_s=0.002)

    async def start():
        stream = engine.submit(Request(prompt_token_ids=(70,), params=LONG))
        task = asyncio.ensure_future(stream.__anext__())
        await asyncio.sleep(0.01)
        del task
        return stream

    stream = asyncio.run(start())
    assert len(engine.generate("x", SHORT).tokens) == 5
    stream.abort()
    with pytest.raises(RequestAbortedError):
        stream.result(timeout=10)


def test_a_closed_engine_refuses_constraints_like_anything_else(make_engine):
    engine = make_engine()
    engine.close()
    request = Request(prompt_token_ids=(70,), params=SHORT, constraint=Regex("a+b"))
    for _ in range(2):
        with pytest.raises(EngineDeadError):
            engine.submit(request)
        with pytest.raises(EngineDeadError):
            engine.compile(Regex("a+b"))


def test_a_refused_request_has_no_grammar_compiled(make_engine, monkeypatch):
    engine = make_engine(ENDLESS, EngineConfig(max_waiting=2), step_delay_s=0.002)
    go = slow_compiler(engine, monkeypatch)
    compiled: list[str] = []
    compile_now = engine._grammars._compile

    def note(constraint, *where):
        compiled.append(constraint.pattern)
        return compile_now(constraint, *where)

    monkeypatch.setattr(engine._grammars, "_compile", note)
    refused = 0
    for number in range(6):
        request = Request(
            prompt_token_ids=(70,), params=SHORT, constraint=Regex(f"a{{{number + 1}}}")
        )
        try:
            engine.submit(request)
        except QueueFullError:
            refused += 1
    go.set()
    assert refused == 4
    engine.compile(Regex("z")).result(20)
    assert compiled == ["a{1}", "a{2}", "z"]
