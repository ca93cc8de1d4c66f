"""Promised: a run inside a run has its backend, seed and end; a run has a deadline."""

from __future__ import annotations

import threading
import time

import pytest

from ramet.lang import RunTimeoutError, State, program, set_default_backend, tool


@program
def inner(s: State, topic: str) -> str:
    s.user(topic)
    return s.gen("a").value


@tool
def ask(topic: str) -> str:
    """Asks."""
    return inner.run(topic).result


@program
def outer(s: State) -> list[object]:
    runs = [inner.run("x"), inner.run("y")]
    spawned = s.spawn(lambda branch: inner.run("z").trace.seed)
    return [s.call(ask, "w"), spawned, *(run.trace.seed for run in runs)]


@program
async def outer_async(s: State) -> list[object]:
    runs = [await inner.arun("x"), await inner.arun("y")]
    return [run.trace.seed for run in runs]


@pytest.mark.parametrize("program_", [outer, outer_async])
def test_a_nested_run_inherits_the_backend_and_draws_its_seed_from_its_callers(
    scripted, program_
) -> None:
    backend = scripted(default="hi")
    first = program_.run(backend=backend, seed=1).result
    assert first == program_.run(backend=backend, seed=1).result
    assert first != program_.run(backend=backend, seed=2).result
    seeds = [seed for seed in first if isinstance(seed, int)]
    assert len(set(seeds)) == len(seeds) >= 2
    salts = {call.cache_salt for call in backend.calls}
    program_.run(backend=backend, cache_salt="mine")
    assert {call.cache_salt for call in backend.calls} == salts | {"mine"}


def test_what_a_nested_run_is_given_comes_first(scripted) -> None:
    other = scripted(default="other")

    @program
    def chooses(s: State) -> tuple[str, int]:
        run = inner.run("x", backend=other, seed=7)
        return run.result, run.trace.seed

    set_default_backend(scripted(default="default"))
    try:
        assert chooses.run(backend=scripted(default="own")).result == ("other", 7)
        assert inner.run("x").result == "default"
    finally:
        set_default_backend(None)


def test_the_end_of_a_run_ends_those_that_it_started(scripted) -> None:
    backend = scripted(default="x")
    backend.hold("a")
    started = threading.Event()

    @program
    def starts(s: State) -> str:
        inner.start("x")
        started.set()
        return inner.run("y").result

    run = starts.start(backend=backend)
    assert started.wait(5)
    while len(backend.running) < 1:
        time.sleep(0.001)
    run.cancel()
    deadline = time.monotonic() + 5
    while len(backend.ended_programs) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_a_dry_run_stops_at_another_program() -> None:
    graph = outer.graph()
    assert graph.open_ends[0].node_id == ""
    assert "runs another program" in graph.tree()
    assert "runs another program" in str(outer.explain())
    graph.mermaid()


def test_a_run_that_takes_too_long_is_aborted_and_keeps_its_values(scripted) -> None:
    backend = scripted({"a": "1", "b": "2"})
    backend.hold("b")

    @program
    def slow(s: State) -> str:
        s.gen("a")
        return s.gen("b").value

    with pytest.raises(RunTimeoutError, match=r"0\.05 s") as caught:
        slow.run(backend=backend, timeout_s=0.05)
    assert caught.value.values == {"a": "1"}
    assert backend.aborted == ["1"]

    @program
    def raises(s: State) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        raises.run(backend=backend, timeout_s=5)
    assert inner.run("x", backend=scripted(default="x"), timeout_s=60).result == "x"
