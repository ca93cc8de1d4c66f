"""A request's events, for whoever reads them, and its whole output, whoever has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.engine.requests.request_stream import RequestStream
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

PARAMS = SamplingParams(max_tokens=40, temperature=0.0, ignore_eos=True)


@pytest.fixture
def engine() -> Iterator[Engine]:
    tokenizer = scripted_tokenizer()
    with Engine(ScriptedModel(tokenizer), tokenizer) as engine:
        yield engine
        engine.check()


def ask(engine: Engine, params: SamplingParams = PARAMS) -> RequestStream:
    return engine.submit(Request(prompt_token_ids=(70, 71, 72), params=params))


def test_a_result_is_whole_after_some_events_were_read_and_may_be_asked_for_again(
    engine: Engine,
) -> None:
    whole = ask(engine).result()
    assert len(whole.tokens) == 40
    stream = ask(engine)
    next(stream)
    assert stream.result().tokens == whole.tokens
    assert stream.result() == stream.result()
    assert asyncio.run(stream.aresult()).text == whole.text
    assert list(stream) == []


def test_a_failure_is_raised_each_time_it_is_asked_for(engine: Engine) -> None:
    stream = ask(engine, SamplingParams(max_tokens=4000, ignore_eos=True))
    next(stream)
    stream.abort()
    for _ in range(2):
        with pytest.raises(RequestAbortedError):
            stream.result()


def test_readers_in_several_threads_share_the_events_and_all_end(engine: Engine) -> None:
    for _ in range(5):
        stream = ask(engine)
        counts = [0, 0, 0]

        def read(index: int, stream: RequestStream = stream, counts: list[int] = counts) -> None:
            for _ in stream:
                counts[index] += 1

        threads = [threading.Thread(target=read, args=(index,), daemon=True) for index in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        assert sum(counts) >= 2
        assert len(stream.result().tokens) == 40


def test_readers_on_one_loop_share_the_events_and_all_end(engine: Engine) -> None:
    async def read_together() -> list[int]:
        stream = ask(engine)
        tokens = await asyncio.gather(*(stream.aresult() for _ in range(3)))
        return [len(each.tokens) for each in tokens]

    assert asyncio.run(asyncio.wait_for(read_together(), 20)) == [40, 40, 40]


def test_an_interrupted_generate_aborts_its_request(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(stream: RequestStream, timeout: float | None = None) -> None:
        next(stream)
        raise KeyboardInterrupt

    monkeypatch.setattr(RequestStream, "result", interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine.generate([70, 71], SamplingParams(max_tokens=4000, ignore_eos=True))
    engine.check()  # after the abort, in the step thread's order
    monkeypatch.undo()
    ask(engine).result()
    assert engine.stats().ends.get("aborted") == 1
