"""A process that hangs is reported, keeps no caller waiting, and is replaced."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ramet.runtime.api.errors import (
    DeadlineExceededError,
    EngineDeadError,
    EngineUnresponsiveError,
    RequestAbortedError,
)
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

LONG = tuple(scripted_tokenizer().encode("word " * 600))


def request(prompt: str = "x", max_tokens: int = 8, deadline_s: float | None = None) -> Request:
    return Request(
        prompt_token_ids=tuple(scripted_tokenizer().encode(prompt)),
        params=SamplingParams(max_tokens=max_tokens, ignore_eos=True),
        deadline_s=deadline_s,
    )


@contextmanager
def stopped(engine: EngineProcess) -> Iterator[None]:
    pid = engine.process_id
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if engine.process_id == pid:
            os.kill(pid, signal.SIGCONT)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_unresponsive(engine: EngineProcess) -> bool:
    return isinstance(engine.error, EngineUnresponsiveError)


def test_a_stopped_process_is_unresponsive_until_it_continues() -> None:
    with EngineProcess(scripted_engine, scripted_tokenizer()) as engine:
        with stopped(engine):
            wait_for(lambda: is_unresponsive(engine))
            with pytest.raises(EngineUnresponsiveError):
                engine.stats()
        wait_for(lambda: engine.error is None)
        assert len(engine.submit(request()).result(timeout=20).token_ids) == 8


def test_deadlines_and_aborts_are_kept_while_it_is_stopped() -> None:
    with EngineProcess(scripted_engine, scripted_tokenizer()) as engine:
        with stopped(engine):
            late = engine.submit(request(deadline_s=0.2))
            with pytest.raises(DeadlineExceededError):
                late.result(timeout=20)
            wait_for(lambda: is_unresponsive(engine))
            aborted = engine.submit(request())
            aborted.abort()
            with pytest.raises(RequestAbortedError):
                aborted.result(timeout=20)
        wait_for(lambda: engine.error is None)
        assert len(engine.submit(request()).result(timeout=20).token_ids) == 8
        wait_for(lambda: engine.error is None)  # it may be slow again on a busy machine
        engine.check()


def test_commands_wait_for_the_pipe_and_none_is_lost() -> None:
    with EngineProcess(scripted_engine, scripted_tokenizer()) as engine:
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        with stopped(engine):
            streams = [
                engine.submit(Request(prompt_token_ids=LONG, params=params)) for _ in range(100)
            ]
        for stream in streams:
            assert len(stream.result(timeout=60).token_ids) == 1


def test_a_process_that_stays_stopped_is_replaced() -> None:
    with EngineProcess(scripted_engine, scripted_tokenizer(), timeout_s=3) as engine:
        pid = engine.process_id
        assert pid is not None
        stream = engine.submit(request(max_tokens=3000))
        next(stream)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(EngineUnresponsiveError):
            stream.result(timeout=60)
        wait_for(lambda: engine.error is None)
        assert engine.process_id != pid
        assert len(engine.submit(request()).result(timeout=20).token_ids) == 8


class HangingModel(ScriptedModel):
    """Its steps hang, all but the first ones, while its threads live."""

    def run(self, batch, overlap=None):  # type: ignore[no-untyped-def]
        if LONG[:20] == tuple(batch.token_ids[:20]):
            time.sleep(600)
        return super().run(batch, overlap)


def hanging_engine() -> Engine:
    from ramet.kernels.sampling.reference import sample_reference

    tokenizer = scripted_tokenizer()
    return Engine(HangingModel(tokenizer, (), sample=sample_reference), tokenizer)


def test_a_step_that_hangs_ends_in_a_new_process_though_threads_live() -> None:
    with EngineProcess(hanging_engine, scripted_tokenizer(), timeout_s=3) as engine:
        pid = engine.process_id
        stream = engine.submit(Request(prompt_token_ids=LONG, params=SamplingParams(max_tokens=1)))
        wait_for(lambda: is_unresponsive(engine) and engine.process_id == pid)
        with pytest.raises(EngineUnresponsiveError):
            stream.result(timeout=60)
        wait_for(lambda: engine.error is None)
        assert engine.process_id != pid


def test_closing_kills_a_stopped_process() -> None:
    engine = EngineProcess(scripted_engine, scripted_tokenizer())
    stream = engine.submit(request(max_tokens=3000))
    assert engine.process_id is not None
    os.kill(engine.process_id, signal.SIGSTOP)
    engine.close()
    with pytest.raises(EngineDeadError):
        stream.result(timeout=10)
