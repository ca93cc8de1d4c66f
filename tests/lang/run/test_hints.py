"""What calls say of their program's future is true, and what isn't known is left open."""

from __future__ import annotations

from typing import Any

from ramet.lang import ScriptedBackend, State, gen, program, tool
from ramet.runtime.api.request import ProgramHint


def hints_of(scripted: Any, body: Any, **script: Any) -> dict[str, ProgramHint]:
    backend: ScriptedBackend = scripted(script, default="1")

    @program
    def planned(s: State) -> None:
        body(s)

    planned.run(backend=backend)
    return {call.name: call.hint for call in backend.calls}


def test_a_chain_of_calls(scripted) -> None:
    def body(s: State) -> None:
        for name in "abc":
            s.append(name, gen(name))

    hints = hints_of(scripted, body)
    assert [hints[n].remaining_uses for n in "abc"] == [2, 1, 0]
    assert [hints[n].steps_to_next_use for n in "abc"] == [0, 0, None]
    assert [hints[n].critical_path_weight for n in "abc"] == [1.0, 1.0, 0.0]
    assert len({hint.program_id for hint in hints.values()}) == 1


def test_a_fork_is_used_by_each_branch(scripted) -> None:
    def body(s: State) -> None:
        s.gen("root")
        branches = s.fork(3)
        branches += gen("leaf")
        branches.join()

    hints = hints_of(scripted, body)
    assert hints["root"].remaining_uses == 3
    assert hints["leaf"].remaining_uses == 0


def test_a_wait_for_other_calls_counts_their_steps(scripted) -> None:
    def body(s: State) -> None:
        s.gen("a")
        side = s.copy()
        side.gen("x")
        side.append(" ", gen("y"))
        s += f"{side['y']}"
        s.gen("b")

    hints = hints_of(scripted, body)
    assert hints["a"].steps_to_next_use == 0  # x extends it at once
    assert hints["x"].steps_to_next_use == 0
    assert hints["y"].steps_to_next_use is None

    def waiting(s: State) -> None:
        side = s.copy()
        s.gen("a")
        side.gen("x")
        side.append(" ", gen("y"))
        s += f"{side['y']}"
        s.gen("b")

    assert hints_of(scripted, waiting)["a"].steps_to_next_use == 2


def test_what_a_program_may_still_do_is_unknown(scripted) -> None:
    def body(s: State) -> None:
        s.gen("a")
        if s["a"] == "1":
            s.gen("b")

    hints = hints_of(scripted, body)
    assert hints["a"].remaining_uses is None
    assert hints["b"].remaining_uses == 0


def test_an_unreferenced_branch_is_done(scripted) -> None:
    def body(s: State) -> None:
        value = s.copy().gen("side")
        value.value  # noqa: B018
        s.gen("main")

    assert hints_of(scripted, body)["side"].remaining_uses == 0


def test_the_critical_path_weighs_more(scripted) -> None:
    def body(s: State) -> None:
        free, needed = s.fork(2)
        free.gen("free")
        needed.gen("needed")
        s += f"{needed['needed']}"
        s.gen("last")

    hints = hints_of(scripted, body)
    assert hints["needed"].critical_path_weight > hints["free"].critical_path_weight == 0.0


def test_a_tool_that_the_next_call_waits_for_is_named(scripted) -> None:
    @tool
    def slow(x: str) -> str:
        """Slow."""
        return x

    def body(s: State) -> None:
        a = s.gen("a")
        s += f"{s.call(slow, x=a)}"
        s.gen("b")

    hints = hints_of(scripted, body)
    assert (hints["a"].tool, hints["b"].tool) == ("slow", "")


def test_hints_can_be_turned_off(scripted) -> None:
    backend = scripted(default="1")

    @program
    def chain(s: State) -> None:
        s.gen("a")
        s.gen("b")

    chain.run(backend=backend, hints=False)
    hint = backend.calls[0].hint
    assert hint is None
