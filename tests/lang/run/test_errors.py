"""Promised: errors name the place and the name that was meant, without the machinery's frames."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from ramet.lang import (
    AgentLimits,
    NodeFailedError,
    Run,
    ScriptedBackend,
    State,
    UsageError,
    connect,
    program,
    select,
    tool,
)
from ramet.runtime.engine import Engine


@program
def typed(s: State, topic: str = "") -> list[int]:
    s.user(topic)
    return s.gen("numbers", list[int]).value


@program
def breaks(s: State) -> None:
    raise LookupError("mine")


@tool
def fails(n: int = 0) -> int:
    """Fails."""
    raise ValueError("no")


def frames_of(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_a_failed_node_is_named_by_its_line_and_text() -> None:
    backend = ScriptedBackend({"numbers": "none at all"}, check_constraints=False)
    with pytest.raises(NodeFailedError) as caught:
        typed.run(backend=backend)
    line = typed.function.__code__.co_firstlineno + 3
    assert caught.value.place == f"test_errors.py:{line}"
    assert f"'numbers' (test_errors.py:{line}, node 1) failed" in str(caught.value)
    assert "it is 'none at all'" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.place) == (str(caught.value), caught.value.place)
    assert str(again.__cause__) == str(caught.value.__cause__)


def test_a_users_error_shows_the_users_frames(scripted) -> None:
    run = breaks.start(backend=scripted())
    for _ in range(2):
        with pytest.raises(LookupError) as caught:
            run.wait()
        name = "test_a_users_error_shows_the_users_frames"
        assert frames_of(caught.value) == [name, "wait", "breaks"]


def test_a_tools_error_shows_the_tools_frames(scripted) -> None:
    @program
    def uses(s: State) -> str:
        return f"{s.call(fails)}"

    with pytest.raises(NodeFailedError) as caught:
        uses.run(backend=scripted())
    failed = caught.value.__cause__
    assert failed is not None
    assert failed.__cause__ is not None
    assert frames_of(failed.__cause__) == ["fails"]


def test_a_tool_with_an_unused_value_may_fail(scripted) -> None:
    @program
    def unused(s: State) -> str:
        s.call(fails)
        return s.gen("w").value

    @program
    def used(s: State) -> str:
        s.copy().append(f"{s.call(fails)}").gen("v")
        return s.gen("w").value

    assert unused.run(backend=scripted(default="x")).result == "x"
    run = used.start(backend=scripted(default="x"))
    with pytest.raises(NodeFailedError, match="fails"):
        run.wait()
    assert run["w"] == "x"


def test_tools_take_arguments_by_place(scripted) -> None:
    @tool
    def join(a: str, b: str = "z") -> str:
        """Joins."""
        return a + b

    @program
    def calls(s: State) -> list[Any]:
        return [s.call(join, "x"), s.call(join, "x", b="y"), s.call(join, s.gen("g"), "y")]

    assert calls.run(backend=scripted(default="g")).result == ["xz", "xy", "gy"]
    for wrong in (
        lambda s: s.call(join, "x", "y", "z"),
        lambda s: s.call(join, "x", a="y"),
        lambda s: s.call(join, "x", c="y"),
    ):
        with pytest.raises(UsageError, match="join"):
            program(wrong).run(backend=scripted())


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: typed.run(tempertaure=1), "temperature"),
        (lambda: typed.run(topik="x"), "topic"),
        (lambda: typed.run(timeout=3), "timeout_s"),
        (lambda: typed.using(sed=3), "seed"),
        (lambda: typed.run_batch([], max_concurency=3), "max_concurrency"),
        (lambda: typed.run_batch([{"topik": "x"}]), "topic"),
        (lambda: AgentLimits(max_turn=3), "max_turns"),
        (lambda: tool(timout_s=3), "timeout_s"),
        (lambda: ScriptedBackend(defualt="x"), "default"),
        (lambda: connect("http://127.0.0.1:9", dialect="rammet"), "ramet"),
        (lambda: Engine.from_model(chache_bytes=3), "cache_bytes"),
        (lambda: Engine.from_model(confg=3), "config"),
        (lambda: select("x", ["a"], method="greedy_selection"), "greedy_token_selection"),
    ],
)  # fmt: skip
def test_an_unknown_name_brings_up_the_right_one(call: Callable[[], Any], hint: str) -> None:
    with pytest.raises((UsageError, TypeError), match=f"did you mean '{hint}'"):
        call()


def test_an_unknown_variable_brings_up_the_right_one(scripted) -> None:
    @program
    def looks(s: State) -> None:
        s.gen("answer")
        s["anwser"]

    with pytest.raises(KeyError, match="did you mean 'answer'"):
        looks.run(backend=scripted(default="x"))
    with pytest.raises(KeyError, match="did you mean 'numbers'"):
        typed.run(backend=scripted(default="[1]"))["number"]


def test_programs_and_runs_pickle(scripted) -> None:
    assert pickle.loads(pickle.dumps(typed)) is typed
    assert pickle.loads(pickle.dumps(typed.run)) == typed.run
    assert pickle.loads(pickle.dumps(typed.using(seed=3))).run(backend=scripted(default="[1]"))
    backend = scripted(default="[1]")
    backend.hold("numbers")
    run = typed.start("x", backend=backend)
    with pytest.raises(UsageError, match="goes on"):
        pickle.dumps(run)
    backend.release("numbers")
    run.wait()
    again: Run[list[int]] = pickle.loads(pickle.dumps(run))
    assert (again.result, again["numbers"], again.values) == ([1], [1], {"numbers": [1]})
    assert again.messages() == run.messages()
    assert again.trace.texts == run.trace.texts
    assert again.meta("numbers").finish_reason == "stop"
    assert list(again.text_iter("numbers")) == list(run.text_iter("numbers"))
    assert again.graph.tree() == run.graph.tree()
    again.cancel()

    failed = breaks.start(backend=scripted())
    with pytest.raises(LookupError):
        failed.wait()
    with pytest.raises(LookupError):
        pickle.loads(pickle.dumps(failed)).wait()


def test_a_connection_pickles() -> None:
    backend = connect("http://127.0.0.1:9", dialect="openai", model="m")
    assert pickle.loads(pickle.dumps(backend)).name == backend.name


def test_events_are_short(scripted) -> None:
    run = typed.run("x", backend=scripted(default="[1]"))
    shown = [repr(event) for event in run.events]
    assert "NodeFinished('numbers', 1, '[1]')" in shown
    assert all(len(text) < 120 for text in shown)
