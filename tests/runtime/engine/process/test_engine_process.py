"""An engine in another process behaves as one in this process, and its death answers everybody."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from functools import partial

import pytest

from ramet.grammars.constraints import Choice, Regex
from ramet.runtime.api.errors import (
    ContextLengthError,
    EngineDeadError,
    InvalidConstraintError,
    InvalidParameterError,
    ModelLoadError,
    RequestAbortedError,
)
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import HintUpdate, ProgramHint, Request
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


@pytest.fixture(scope="module")
def engine() -> Iterator[EngineProcess]:
    with EngineProcess(scripted_engine, scripted_tokenizer(), model_name="m") as engine:
        yield engine
        engine.check()


def request(text: str, *, max_tokens: int = 8, **more: object) -> Request:
    params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    ids = tuple(scripted_tokenizer().encode(text))
    return Request(prompt_token_ids=ids, params=params, **more)


def test_same_output_as_in_this_process(engine: EngineProcess) -> None:
    with scripted_engine() as local:
        expected = local.submit(request("hello")).result()
    got = engine.submit(request("hello")).result()
    assert got.token_ids == expected.token_ids
    assert got.usage.completion_tokens == 8


async def test_many_together_over_asyncio(engine: EngineProcess) -> None:
    streams = [engine.submit(request(f"number {i}")) for i in range(40)]
    assert {len((await stream).token_ids) for stream in streams} == {8}


def test_constraints_and_their_errors_cross_the_border(engine: EngineProcess) -> None:
    picked = engine.submit(request("pick", constraint=Choice(("left", "right")))).result()
    assert picked.text in {"left", "right"}
    with pytest.raises(InvalidConstraintError):
        engine.submit(request("pick", constraint=Regex("(["))).result()


def test_wrong_requests_are_raised_here(engine: EngineProcess) -> None:
    with pytest.raises(ContextLengthError):
        engine.submit(request("x", max_tokens=10**9))


def test_what_programs_say_crosses_the_border(engine: EngineProcess) -> None:
    hint = ProgramHint(program_id="p", node_id="0", tokens_to_come=100)
    engine.submit(request("kept for later " * 9, hint=hint)).result()
    engine.clear_cache()
    assert engine.stats().num_cached_pages > 0
    engine.update_hint(HintUpdate(program_id="p", unneeded=("0",), has_ended=True))
    engine.clear_cache()
    assert engine.stats().num_cached_pages == 0


def test_abort_ends_the_stream(engine: EngineProcess) -> None:
    stream = engine.submit(request("long", max_tokens=2000))
    next(stream)
    stream.abort()
    with pytest.raises(RequestAbortedError):
        stream.result(timeout=10)
    assert engine.stats().num_running == 0


def test_a_killed_process_answers_everybody_and_comes_back() -> None:
    with EngineProcess(scripted_engine, scripted_tokenizer()) as engine:
        streams = [engine.submit(request(f"{i}", max_tokens=3000)) for i in range(8)]
        for stream in streams:
            next(stream)
        pid = engine.process_id
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for stream in streams:
            with pytest.raises(EngineDeadError):
                stream.result(timeout=20)
        assert isinstance(engine.error, EngineDeadError)
        deadline = time.monotonic() + 60
        while engine.error is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(engine.submit(request("again")).result().token_ids) == 8


def test_what_fails_at_the_start_is_raised() -> None:
    with pytest.raises(ModelLoadError):
        EngineProcess.from_model("no-such-model")
    with pytest.raises(AttributeError):
        EngineProcess(partial(scripted_engine, config="wrong"), scripted_tokenizer())


def test_a_closed_engine_refuses() -> None:
    engine = EngineProcess(scripted_engine, scripted_tokenizer())
    stream = engine.submit(request("x", max_tokens=3000))
    engine.close()
    with pytest.raises(EngineDeadError):
        stream.result(timeout=10)
    with pytest.raises(EngineDeadError):
        engine.submit(request("x"))


def test_a_vector_crosses_the_border(engine: EngineProcess) -> None:
    ids = tuple(scripted_tokenizer().encode("a river"))
    with scripted_engine() as local:
        expected = local.submit(Request(prompt_token_ids=ids, pooling="mean")).result()
    got = engine.submit(Request(prompt_token_ids=ids, pooling="mean")).result()
    assert got.embedding is not None
    assert expected.embedding is not None
    assert got.embedding.tolist() == expected.embedding.tolist()
    with pytest.raises(InvalidParameterError):
        engine.submit(Request(prompt_token_ids=ids, pooling="max")).result()  # type: ignore[arg-type]
