"""A typed output is complete within ``max_tokens``, and a text that was cut is never a value."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import pytest

from ramet.lang import (
    NodeFailedError,
    OutputTruncatedError,
    State,
    UnsupportedError,
    UsageError,
    choice,
    connect,
    program,
    regex,
)
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.testing.scripted_model import Script

RAMBLING = Script(['["a text that goes on and on and on'])
DIGITS = Script(["1"], repeat=True)


@program
def typed(s: State, type_: Any, max_tokens: int, complete: bool | None) -> Any:
    s.user("x")
    return s.gen("x", type_, max_tokens=max_tokens, complete=complete)


def cause(run: Any) -> BaseException:
    assert isinstance(run.error, NodeFailedError)
    assert run.error.__cause__ is not None
    return run.error.__cause__


def run(backend: Any, *arguments: Any) -> Any:
    started = typed.start(*arguments, backend=backend, seed=1)
    with contextlib.suppress(NodeFailedError):
        started.wait()
    return started


@pytest.mark.parametrize(
    "type_", [int, regex("[0-9]{8}"), choice("1 very long choice", "2, as long"), Literal["12345"]]
)
def test_a_cut_text_is_never_a_value(scripted_engine, served, type_: Any) -> None:
    for backend in (scripted_engine(DIGITS), connect(served(DIGITS))):
        failed = cause(run(backend, type_, 3, False))
        assert isinstance(failed, OutputTruncatedError)
        assert failed.text


def test_a_typed_output_is_complete(scripted_engine, served) -> None:
    for backend in (scripted_engine(RAMBLING), connect(served(RAMBLING))):
        done = run(backend, list[str], 12, None)
        assert len(done.result) == 1
        assert done.result[0].startswith("a text")
        assert done.meta("x").finish_reason == "stop"


def test_a_budget_below_the_minimum_is_the_callers_fault(scripted_engine) -> None:
    failed = cause(run(scripted_engine(DIGITS), regex("[0-9]{8}"), 3, None))
    assert isinstance(failed, InvalidParameterError)
    assert "max_tokens is 3; the shortest valid output takes 4" in str(failed)


def test_complete_is_true_or_false(scripted_engine) -> None:
    with pytest.raises(UsageError, match="complete is True or False, not 'yes'"):
        typed.run(int, 3, "yes", backend=scripted_engine(DIGITS))


def test_a_server_that_can_not_promise_it_is_not_asked(served) -> None:
    backend = connect(served(RAMBLING), dialect="openai")
    with pytest.raises(UnsupportedError, match="promise a complete output"):
        typed.run(list[str], 12, True, backend=backend)


def test_a_typed_output_without_a_limit_takes_what_it_needs(scripted_engine, served) -> None:
    long = "word " * 80  # more tokens than free text has by default
    for backend in (
        scripted_engine(Script([f'["{long}"]'])),
        connect(served(Script([f'["{long}"]']))),
    ):

        @program
        def unlimited(s: State) -> Any:
            s.user("x")
            return s.gen("x", list[str])

        done = unlimited.run(backend=backend)
        assert done.result == [long]
    assert unlimited.graph().calls()[0].params.max_tokens is None


def test_an_output_can_land_softly(scripted_engine, served) -> None:
    @program
    def landing(s: State, share: Any, **options: Any) -> Any:
        s.user("x")
        return s.gen("x", list[str], max_tokens=30, landing=share, **options)

    for backend in (scripted_engine(RAMBLING), connect(served(RAMBLING))):
        assert landing.run(True, backend=backend).result
    assert landing.graph(True).calls()[0].landing == 0.5
    assert landing.graph(0.25).calls()[0].landing == 0.25
    for share, options in ((2, {}), ("soon", {}), (1, {}), (True, {"complete": False})):
        with pytest.raises(UsageError, match="landing"):
            landing.run(share, backend=backend, **options)
    with pytest.raises(UnsupportedError, match="promise a complete output"):
        landing.run(0.5, backend=connect(served(RAMBLING), dialect="openai"))


def test_a_limit_is_sent_where_the_other_servers_is_sixteen_tokens(served) -> None:
    @program
    def bare(s: State) -> Any:
        s += "x"
        return s.gen("x", choice("a" * 40, "b" * 40))

    served_at = served(Script(["a"], repeat=True))
    assert bare.run(backend=connect(served_at, dialect="vllm")).result == "a" * 40
