"""A fault ends what depends on it and nothing else; every way out leaves nothing running."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.lang import (
    DependencyFailedError,
    GraphError,
    NodeFailedError,
    ScriptedBackend,
    State,
    UnsupportedError,
    program,
)
from ramet.lang.backends.base import CallPlace
from ramet.lang.graph.nodes import Gen, Select
from ramet.lang.run.events import NodeFailed, NodeFinished, RunEnded
from ramet.lang.types.values import Value
from ramet.runtime.api.errors import RequestAbortedError


def wait_until(condition) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.001)


def test_a_failed_call_takes_its_dependents_and_nothing_else(scripted) -> None:
    backend = scripted({"bad": ValueError("broke"), "good": "g", "after": "x", "last": "l"})

    @program
    def branches(s: State) -> None:
        a, b = s.fork(2)
        bad = a.gen("bad")
        a.gen("after")
        b.gen("good")
        s += f"{bad}"
        s.gen("last")

    with pytest.raises(NodeFailedError) as caught:
        branches.run(backend=backend)
    error = caught.value
    assert (error.node_id, error.node_name) == ("0.0.0", "bad")
    assert isinstance(error.__cause__, ValueError)
    assert error.values == {"good": "g"}
    assert [call.name for call in backend.calls] == ["bad", "good"]


def test_dependents_get_the_failure(scripted) -> None:
    @program
    def chain(s: State) -> None:
        s.gen("a")
        s.gen("b")
        s.gen("c")

    run = chain.start(backend=scripted({"a": ValueError("x"), "b": "", "c": ""}))
    with pytest.raises(NodeFailedError, match="'a'"):
        run.wait()
    failures = {e.node.id: e.error for e in run.events if isinstance(e, NodeFailed)}
    assert isinstance(failures["1"], DependencyFailedError)
    assert isinstance(failures["2"], DependencyFailedError)
    assert failures["2"].failed_id == "0"


def test_a_program_may_deal_with_a_failure(scripted) -> None:
    @program
    def careful(s: State) -> str:
        side = s.copy()
        bad = side.gen("bad")
        side.gen("dependent")
        try:
            return bad.value
        except NodeFailedError:
            return s.gen("plan_b").value

    backend = scripted({"bad": ValueError("x"), "plan_b": "b"})
    assert careful.run(backend=backend).result == "b"


def test_an_unobserved_failure_is_raised_at_the_end(scripted) -> None:
    @program
    def blind(s: State) -> str:
        s.copy().gen("bad")
        return "fine"

    with pytest.raises(NodeFailedError, match="bad"):
        blind.run(backend=scripted({"bad": ValueError("x")}))


def test_an_exception_in_a_spawned_branch_stays_there(scripted) -> None:
    backend = scripted({"a": "1", "b": "2"})

    @program
    def outer(s: State) -> tuple[str, str]:
        def bad(branch: State) -> str:
            branch.gen("a").value  # noqa: B018
            raise KeyError("mine")

        broken = s.spawn(bad)
        fine = s.spawn(lambda branch: branch.gen("b"))
        try:
            broken.value  # noqa: B018
        except NodeFailedError as error:
            return fine.value, type(error.__cause__).__name__
        return "", ""

    assert outer.run(backend=backend).result == ("2", "KeyError")


def test_a_failed_call_inside_a_branch_is_named_by_its_own_node(scripted) -> None:
    @program
    def outer(s: State) -> str:
        return s.spawn(lambda branch: branch.gen("inner").value).value

    with pytest.raises(NodeFailedError) as caught:
        outer.run(backend=scripted({"inner": ValueError("x")}))
    assert caught.value.node_name == "inner"


def test_the_programs_own_exception_comes_out_and_ends_the_calls(scripted) -> None:
    backend = scripted({"a": "1"})
    backend.hold("a")

    @program
    def raises(s: State) -> None:
        s.copy().gen("a")
        s.spawn(lambda branch: branch.gen("a").value)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        raises.run(backend=backend)
    assert backend.running == set()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_program_that_ends_python_ends_its_caller_and_not_the_loop(scripted, error) -> None:
    @program
    def leaves(s: State, how: str) -> str:
        def side(branch: State) -> None:
            raise error

        if how == "spawned":
            s.spawn(side)
            return ""
        s.copy().gen("a")
        raise error

    with pytest.raises(type(error)):
        leaves.run("itself", backend=scripted(default="x"))
    with pytest.raises(NodeFailedError):
        leaves.run("spawned", backend=scripted(default="x"))

    @program
    def fine(s: State) -> str:
        return s.gen("a").value

    assert fine.run(backend=scripted(default="x")).result == "x"


def test_cancel_aborts_every_call_and_ends_the_run(scripted) -> None:
    backend = scripted({"a": "1", "b": "2"})
    backend.hold("a", "b")

    @program
    def waits(s: State) -> str:
        one, two = s.fork(2)
        one.gen("a")
        return two.gen("b").value

    run = waits.start(backend=backend)
    wait_until(lambda: len(backend.running) == 2)
    run.cancel()
    with pytest.raises(RequestAbortedError):
        run.wait()
    assert backend.running == set()
    assert sorted(backend.aborted) == ["0.0.0", "0.1.0"]
    assert backend.ended_programs == [run.trace.program_id]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's own handling of Ctrl-C, which a parent may have turned off (``nohup``, ``&``)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_aborts_the_runs_calls(scripted) -> None:
    backend = scripted({"a": "1"})
    backend.hold("a")

    @program
    def waits(s: State) -> str:
        return s.gen("a").value

    def interrupt() -> None:
        wait_until(lambda: backend.running)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        waits.run(backend=backend)
    thread.join()
    wait_until(lambda: backend.aborted == ["0"])
    assert backend.running == set()


async def test_cancelling_the_awaiting_task_cancels_the_run(scripted) -> None:
    backend = scripted({"a": "1"})
    backend.hold("a")

    @program
    def waits(s: State) -> str:
        return s.gen("a").value

    task = asyncio.create_task(waits.arun(backend=backend))
    while not backend.running:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    while backend.running:
        await asyncio.sleep(0)
    assert backend.aborted == ["0"]


def test_a_branch_that_waits_for_itself_is_refused(scripted) -> None:
    @program
    def knot(s: State) -> str:
        own: list[Value[str]] = []
        own.append(s.spawn(lambda branch: own[0].value))
        return own[0].value

    with pytest.raises(NodeFailedError) as caught:
        knot.run(backend=scripted())
    assert isinstance(caught.value.__cause__, GraphError)


def test_branches_that_wait_for_each_other_are_refused(scripted) -> None:
    @program
    def knot(s: State) -> None:
        pair: list[Value[str]] = []
        pair.append(s.spawn(lambda branch: pair[1].value))
        pair.append(s.spawn(lambda branch: branch.append(f"{pair[0]}").gen("x")))

    with pytest.raises(NodeFailedError) as caught:
        knot.run(backend=scripted({"x": "x"}))
    assert isinstance(caught.value.__cause__, GraphError)


def test_what_a_backend_lacks_is_refused_before_the_call(scripted) -> None:
    class Limited(ScriptedBackend):
        def check(self, node: Gen | Select, place: CallPlace) -> None:
            if isinstance(node, Select):
                raise UnsupportedError("limited", "select", node.id)

    @program
    def choose(s: State) -> None:
        s.gen("a")
        s.select("x", ["a", "b"])

    backend = Limited({"a": "1"})
    with pytest.raises(UnsupportedError, match="select"):
        choose.run(backend=backend)
    assert backend.calls == []


@st.composite
def _plans(draw: st.DrawFn) -> list[tuple[int, list[int], bool]]:
    """Calls over some branches: (branch, calls that its text refers to, whether it fails)."""
    plan: list[tuple[int, list[int], bool]] = []
    for index in range(draw(st.integers(1, 10))):
        refers = draw(st.lists(st.integers(0, max(0, index - 1)), max_size=3)) if index else []
        plan.append((draw(st.integers(0, 3)), refers, draw(st.integers(0, 5)) == 0))
    return plan


@given(_plans(), st.randoms(use_true_random=False), st.booleans())
@settings(max_examples=60, deadline=None)
def test_exactly_what_depends_on_a_failure_is_not_sent(plan, random, cancels) -> None:
    """The law of the graph: a call is sent iff all that it needs has finished well."""
    fails = {f"c{index}" for index, (_, _, bad) in enumerate(plan) if bad}
    names = [f"c{index}" for index in range(len(plan))]
    backend = ScriptedBackend({n: ValueError(n) if n in fails else f"<{n}>" for n in names})
    backend.hold(*names)

    @program
    def planned(s: State) -> None:
        branches = s.fork(4)
        values: list[Value[str]] = []
        for index, (branch, refers, _) in enumerate(plan):
            for other in refers:
                branches[branch].append(f"{values[other]}")
            values.append(branches[branch].gen(f"c{index}"))

    run = planned.start(backend=backend)
    order = list(names)
    random.shuffle(order)
    for position, name in enumerate(order):
        if cancels and position == len(order) // 2:
            run.cancel()
        backend.release(name)
    events = list(run.events)

    needed_failed: dict[str, bool] = {}
    last_in_branch: dict[int, str] = {}
    for index, (branch, refers, _) in enumerate(plan):
        needs = [f"c{other}" for other in refers]
        if branch in last_in_branch:
            needs.append(last_in_branch[branch])
        needed_failed[names[index]] = any(needed_failed[n] or n in fails for n in needs)
        last_in_branch[branch] = names[index]

    settled = [e.node.id for e in events if isinstance(e, NodeFinished | NodeFailed)]
    assert len(settled) == len(set(settled))
    assert isinstance(events[-1], RunEnded)
    assert backend.running == set()
    sent = {call.name for call in backend.calls}
    if not cancels:
        assert len(settled) == len(plan)
        assert sent == {name for name in names if not needed_failed[name]}
        assert (events[-1].error is None) == (not fails)
    else:
        assert sent <= {name for name in names if not needed_failed[name]}
