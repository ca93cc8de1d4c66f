"""What a program learns after its calls were sent reaches whoever keeps prefixes for it."""

from __future__ import annotations

import contextlib
import gc
import json
from typing import Any

import httpx
import pytest

from ramet.lang import HttpBackend, NodeFailedError, ScriptedBackend, State, connect, program, tool
from ramet.lang.backends.dialects import OPENAI, RAMET, Dialect
from ramet.lang.backends.http import HINT_UPDATES_PATH
from ramet.lang.backends.transport import Transport
from ramet.lang.run.open_branches import OpenBranches
from ramet.runtime.api.request import LIKELY_OUTPUT_LEN


def unneeded(backend: ScriptedBackend) -> set[str]:
    return {node_id for update in backend.hint_updates for node_id in update.unneeded}


@program
def contest(s: State) -> str:
    """Three ideas, of which one is gone on from."""
    s.user("Ideas?")
    branches = s.fork(3)
    for branch in branches:
        branch.user("One:")
        branch.gen("idea", max_tokens=8)
    [branch["idea"].value for branch in branches]
    best = branches[1]
    del branches, branch
    gc.collect()
    best.user("Go on.")
    plan: str = best.gen("plan", max_tokens=8).value
    return plan


def test_branches_that_are_not_coming_are_released_and_the_one_that_comes_is_not(scripted) -> None:
    backend = scripted(default="ok")
    run = contest.run(backend=backend)
    ideas = [call for call in backend.calls if call.name == "idea"]
    assert [call.hint.remaining_uses for call in ideas] == [None, None, None]
    assert unneeded(backend) == {ideas[0].node_id, ideas[2].node_id}
    assert backend.hint_updates[-1].has_ended
    assert {update.program_id for update in backend.hint_updates} == {run.trace.program_id}
    plan = backend.calls[-1]
    assert plan.hint.extends == ideas[1].node_id


def test_a_call_that_failed_is_not_waited_for(scripted) -> None:
    backend = scripted(default="ok")

    @tool
    def broken() -> str:
        """Fails."""
        raise ValueError("no")

    @program
    def waits(s: State) -> str:
        s.gen("a")
        s += f" {s.call(broken)} "
        with contextlib.suppress(NodeFailedError):
            str(s.gen("b"))
        other = s.copy()
        other += " and"
        return str(other.gen("c").value)

    with pytest.raises(NodeFailedError):
        waits.run(backend=backend)  # c goes on from what failed
    assert [call.name for call in backend.calls] == ["a"]
    assert backend.calls[0].hint.remaining_uses == 1
    assert backend.ended_programs


def test_the_end_is_the_last_update(scripted) -> None:
    backend = scripted({"a": "1", "b": ValueError("no")})

    @program
    def fails(s: State) -> None:
        branches = s.fork(2)
        branches[0].gen("a")
        branches[1].gen("b")
        branches[1].gen("c")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails.run(backend=backend)
    assert [update.has_ended for update in backend.hint_updates] == [True]


def test_without_hints_the_only_update_is_the_end(scripted) -> None:
    backend = scripted(default="ok")
    contest.run(backend=backend, hints=False)
    assert all(call.hint is None for call in backend.calls)
    assert not unneeded(backend)
    assert len(backend.ended_programs) == 1


@pytest.mark.parametrize(("dialect", "is_told"), [(RAMET, True), (OPENAI, False)])
def test_updates_are_sent_to_ramet_and_to_no_other_server(dialect: Dialect, is_told: bool) -> None:
    told: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == HINT_UPDATES_PATH:
            told.append(json.loads(request.content))
            return httpx.Response(500, json={"error": "nobody minds"})
        chunk = {"choices": [{"index": 0, "delta": {"content": "ok"}, "finish_reason": "stop"}]}
        return httpx.Response(200, text=f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n")

    transport = Transport("http://test", transport=httpx.MockTransport(handler))
    contest.run(backend=HttpBackend(transport, dialect, model="m"))
    assert bool(told) is is_told
    if is_told:
        assert sum(len(update["unneeded"]) for update in told) == 2
        assert told[-1]["has_ended"]


def test_an_engine_keeps_nothing_for_a_run_that_is_over(scripted_engine, served) -> None:
    engine = scripted_engine()
    contest.run(backend=engine)
    engine.check()
    assert engine.clear_cache() > 0
    assert engine.stats().num_free_pages == engine.stats().num_pages
    contest.run(backend=connect(served()))  # the server takes them, too


def test_what_is_to_come_shrinks_to_nothing(scripted) -> None:
    backend = scripted(default="ok")

    @program
    def wide(s: State) -> None:
        s.user("x" * 400)
        for branch in s.fork(3):
            branch.user("y" * 40)
            branch.gen("a", max_tokens=8)
            branch.user("z" * 40)
            branch.gen("b")

    wide.run(backend=backend)
    to_come = [call.hint.tokens_to_come for call in backend.calls]
    last, first = 10 + LIKELY_OUTPUT_LEN, 10 + 8
    assert to_come[:3] == [3 * last + 2 * first, 3 * last + first, 3 * last]
    assert to_come[3:] == [2 * last, last, 0]
    assert {call.hint.program for call in backend.calls} == {"wide"}


def test_open_branches_know_what_may_still_be_extended() -> None:
    branches = OpenBranches()
    for branch in ("", "3.0", "3.1", "3.1.7.0"):
        branches.add(branch)
    branches.discard("")
    assert branches.may_follow("2")
    assert branches.may_follow("3.1.6")
    assert not branches.may_follow("4")  # the fork came before it
    branches.discard("3.1")
    branches.discard("3.1")
    assert branches.may_follow("3.1.6")
    assert not branches.may_follow("3.1.8")
    branches.discard("3.1.7.0")
    assert not branches.may_follow("3.1.6")
    assert branches.may_follow("0")
    branches.discard("3.0")
    assert not branches.may_follow("0")
