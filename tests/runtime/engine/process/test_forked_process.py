"""What becomes of an engine, its streams and a run in a process that is forked from theirs."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Callable, Iterator

import pytest

from ramet import SamplingParams, program
from ramet.grammars import Regex
from ramet.lang import ScriptedBackend
from ramet.runtime.api.errors import ForkedProcessError, RametError
from ramet.runtime.api.request import HintUpdate, Request
from ramet.runtime.engine import Engine
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.engine.requests.request_stream import RequestStream
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

AnyEngine = Engine | EngineProcess
SHORT = SamplingParams(max_tokens=3, ignore_eos=True)
LONG = SamplingParams(max_tokens=5000, ignore_eos=True)
ANSWER_S = 20


@program
def greeting(s):
    s += "hello"
    return s.gen("name", max_tokens=3)


def in_a_fork(work: Callable[[], object]) -> str:
    """What ``work`` raises in a forked process, by its type's name; "" if nothing."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads
        child = os.fork()
    if child == 0:
        signal.alarm(ANSWER_S)  # one that waits for ever is killed, and answers nothing
        try:
            work()
            answer = "ok"
        except BaseException as error:
            answer = type(error).__name__
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    assert answer, "it waited for ever"
    return "" if answer == "ok" else answer


def request(params: SamplingParams = SHORT) -> Request:
    return Request(prompt_token_ids=tuple(scripted_tokenizer().encode("x")), params=params)


@pytest.fixture(params=["here", "in a process"])
def engine(request: pytest.FixtureRequest) -> Iterator[AnyEngine]:
    made: AnyEngine
    if request.param == "here":
        made = scripted_engine()
    else:
        made = EngineProcess(scripted_engine, scripted_tokenizer())
    with made:
        yield made


USES: dict[str, Callable[[AnyEngine], object]] = {
    "submit": lambda engine: engine.submit(request()),
    "compile": lambda engine: engine.compile(Regex("a+")).result(),
    "update_hint": lambda engine: engine.update_hint(HintUpdate(program_id="p", has_ended=True)),
    "stats": lambda engine: engine.stats(),
    "check": lambda engine: engine.check(),
    "clear_cache": lambda engine: engine.clear_cache(),
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_every_use_of_an_engine_is_refused(
    engine: AnyEngine, use: Callable[[AnyEngine], object]
) -> None:
    use(engine)
    assert in_a_fork(lambda: use(engine)) == ForkedProcessError.__name__
    use(engine)


def test_prompts_and_programs_are_refused() -> None:
    with scripted_engine() as engine:
        uses: list[Callable[[], object]] = [
            lambda: engine.generate("x", SHORT),
            lambda: asyncio.run(engine.agenerate("x", SHORT)),
        ]
        for use in uses:
            assert in_a_fork(use) == ForkedProcessError.__name__

        def failure() -> None:
            try:
                greeting.run(backend=engine)
            except RametError as error:
                raise error.__cause__ or error from None

        assert in_a_fork(failure) == ForkedProcessError.__name__
        assert len(greeting.run(backend=engine)["name"]) > 0


def test_a_fork_neither_ends_nor_aborts_what_is_its_parents(engine: AnyEngine) -> None:
    with engine.submit(request(LONG)) as stream:
        next(stream)

        def leave() -> None:
            engine.abort(stream.request_id)
            stream.abort()
            engine.close()

        assert in_a_fork(leave) == ""
        assert not stream.ended
        assert engine.submit(request()).result().usage.completion_tokens == 3
        assert engine.stats().num_running == 1


READS: dict[str, Callable[[RequestStream], object]] = {
    "next": next,
    "take": lambda stream: stream.take(),
    "result": lambda stream: stream.result(),
    "aresult": lambda stream: asyncio.run(stream.aresult()),
}


@pytest.mark.parametrize("read", READS.values(), ids=list(READS))
def test_a_stream_is_read_in_a_fork_only_if_it_had_ended(
    engine: AnyEngine, read: Callable[[RequestStream], object]
) -> None:
    with engine.submit(request(LONG)) as stream:
        assert in_a_fork(lambda: read(stream)) == ForkedProcessError.__name__
    with engine.submit(request()) as ended:
        ended.result()
    if read is not next:
        assert in_a_fork(lambda: read(ended)) == ""


def test_a_run_is_read_in_a_fork_only_if_it_had_ended() -> None:
    with scripted_engine() as engine:

        @program
        def endless(s):
            s += "hello"
            return s.gen("all", max_tokens=5000, ignore_eos=True)

        run = endless.start(backend=engine)
        uses: list[Callable[[], object]] = [
            run.wait,
            lambda: run["all"],
            lambda: run.result,
            lambda: list(run.events),
            lambda: list(run.text_iter()),
        ]
        for use in uses:
            assert in_a_fork(use) == ForkedProcessError.__name__
        run.cancel()
        with pytest.raises(RametError):
            run.wait()
        ended = greeting.run(backend=engine)
        assert in_a_fork(lambda: ended["name"] + ended.text()) == ""
        assert in_a_fork(lambda: list(ended.events)) == ""


def test_a_fork_may_have_an_engine_and_runs_of_its_own() -> None:
    with scripted_engine() as engine:
        greeting.run(backend=engine)

        def live() -> None:
            with scripted_engine() as own:
                own.generate("x", SHORT)
                greeting.run(backend=own)
            assert greeting.run(backend=ScriptedBackend({"name": "ann"}))["name"] == "ann"

        assert in_a_fork(live) == ""
