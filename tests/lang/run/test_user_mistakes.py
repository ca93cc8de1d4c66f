"""Mistakes in programs are reported where they are made, and no reference leaks as text."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal

import pytest

from ramet.lang import (
    AgentLimits,
    ScriptedBackend,
    State,
    Tool,
    Value,
    choice,
    program,
    regex,
    tool,
)
from ramet.lang.base.errors import (
    DamagedReferenceError,
    OutputTypeError,
    RoleError,
    UnknownNameError,
    UsageError,
)
from ramet.runtime.api.errors import InvalidParameterError, RametError

Scripted = Callable[..., ScriptedBackend]


class Twins(enum.Enum):
    NUMBER = 1
    TEXT = "1"


@program
def asks(s: State, name: Any = "x", type_: Any = None, **options: Any) -> Any:
    s += "Say: "
    return s.gen(name, type_, **options)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"name": int}, UsageError),
        ({"name": 5}, UsageError),
        ({"type_": {"type": "object"}}, OutputTypeError),
        ({"type_": Twins}, OutputTypeError),
        ({"type_": Literal[True, "True"]}, OutputTypeError),
        ({"stop": 5}, InvalidParameterError),
        ({"regex": 5}, UsageError),
        ({"ebnf": ["root"]}, UsageError),
        ({"choices": "abc"}, UsageError),
        ({"choices": 3}, UsageError),
        ({"choices": [1, 2]}, OutputTypeError),
    ],
)
def test_what_a_call_can_not_mean_is_refused_before_anything_is_sent(
    scripted: Scripted, options: dict[str, Any], error: type[RametError]
) -> None:
    backend = scripted(default="x")
    with pytest.raises(error):
        asks.using(backend=backend).run(**options)
    assert backend.calls == []


@pytest.mark.parametrize(
    ("choices", "method"), [("abc", "token_length_normalized"), (["a", "b"], "best"), ([], "x")]
)
def test_select_takes_a_list_and_a_known_method(
    scripted: Scripted, choices: Any, method: Any
) -> None:
    @program
    def picks(s: State) -> Value[str]:
        s += "Pick: "
        return s.select("x", choices, method=method)

    backend = scripted(default="a")
    with pytest.raises(UsageError):
        picks.run(backend=backend)
    assert backend.calls == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [("seed", "x"), ("seed", 1.5), ("priority", "high"), ("cache_salt", 5), ("hints", "yes")],
)
def test_settings_of_a_run_have_their_types(scripted: Scripted, setting: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as error:
        asks.using(**{setting: value}).run(backend=scripted(default="x"))
    assert error.value.param == setting


def test_one_branch_can_be_appended_to_by_its_number_but_not_replaced(scripted: Scripted) -> None:
    @program
    def forks(s: State, *, replace: bool) -> Any:
        s += "a"
        branches = s.fork(2)
        branches[0] += "left"
        branches[1] += "right"
        if replace:
            branches[0] = branches[1]
        return [branch.text() for branch in branches]

    assert forks.run(replace=False, backend=scripted()).result == ["aleft", "aright"]
    with pytest.raises(UsageError):
        forks.run(replace=True, backend=scripted())


def test_references_in_a_result_are_resolved(scripted: Scripted) -> None:
    @program
    def tells(s: State) -> Any:
        s += "Say: "
        value = s.gen("x", int)
        return {"text": f"It is {value}!", "all": [value, (f"{value:03}", "plain")]}

    run = tells.run(backend=scripted({"x": "7"}))
    assert run.result == {"text": "It is 7!", "all": [7, ("007", "plain")]}


def test_references_in_a_branch_s_result_are_resolved(scripted: Scripted) -> None:
    def work(branch: State) -> str:
        branch += "Say: "
        return f"<{branch.gen('x')}>"

    @program
    def spawns(s: State) -> Any:
        s += "a"
        done = s.spawn(work)
        s += f"Then {done}."
        return s.text()

    assert spawns.run(backend=scripted({"x": "yes"})).result == "aThen <yes>."


def test_what_a_model_writes_is_never_read_as_a_reference(scripted: Scripted) -> None:
    @program
    def leaks(s: State) -> Any:
        s += "Say: "
        first = s.gen("first")
        tokens.append(f"{first}")
        s += " and "
        return s.gen("second")

    tokens: list[str] = []
    backend = scripted({"first": "secret", "second": lambda _: tokens[0]})
    assert leaks.run(backend=backend).result == tokens[0]


@pytest.mark.parametrize(
    "options",
    [
        lambda ref: {"stop": ref},
        lambda ref: {"stop": ["\n", ref]},
        lambda ref: {"bad_words": (ref,)},
        lambda ref: {"choices": [ref, "other"]},
        lambda ref: {"regex": ref},
        lambda ref: {"json_schema": {"const": ref}},
        lambda ref: {"type_": regex(ref)},
        lambda ref: {"type_": "See " + choice(ref, "other")},
        lambda ref: {"name": ref},
    ],
)
def test_no_reference_stands_where_its_value_can_not_be_put(
    scripted: Scripted, options: Callable[[str], dict[str, Any]]
) -> None:
    @program
    def refers(s: State) -> Any:
        s += "Say: "
        given = options(f"{s.gen('x')}")
        s += "Again: "
        return s.gen(**{"name": "y", **given})

    backend = scripted(default="x")
    with pytest.raises(DamagedReferenceError):
        refers.run(backend=backend)


@pytest.mark.parametrize("cut", [14, 20, 40, 60])
def test_a_text_cut_inside_a_reference_is_refused(scripted: Scripted, cut: int) -> None:
    @program
    def cuts(s: State) -> Any:
        s += "Say: "
        s += f"{s.gen('x')}"[:cut] + "..."

    with pytest.raises(DamagedReferenceError):
        cuts.run(backend=scripted(default="x"))


def test_a_text_that_only_looks_like_a_reference_is_text(scripted: Scripted) -> None:
    @program
    def quotes(s: State) -> Any:
        s += "Say: "
        s.gen("x")
        s += "ramet_ref_ ramet_ref_zz ramet_ref_000"
        return s.text()

    run = quotes.run(backend=scripted(default="x"))
    assert run.result.endswith("ramet_ref_ ramet_ref_zz ramet_ref_000")


def test_a_batch_with_a_wrong_item_is_refused_before_anything_is_sent(scripted: Scripted) -> None:
    @program
    def echoes(s: State, word: str) -> Value[str]:
        s += word
        return s.gen("x")

    backend = scripted(default="x")
    with pytest.raises(UsageError, match="item 1"):
        echoes.run_batch([{"word": "a"}, {"wort": "b"}], backend=backend)
    assert backend.calls == []


def test_text_of_an_unknown_variable_is_an_error_and_of_an_empty_one_is_none(
    scripted: Scripted,
) -> None:
    with pytest.raises(UnknownNameError):
        list(asks.start(backend=scripted(default="x")).text_iter("y"))
    assert list(asks.start(backend=scripted({"x": ""})).text_iter("x")) == []


def test_raw_text_has_no_messages(scripted: Scripted) -> None:
    with pytest.raises(RoleError):
        asks.run(backend=scripted(default="x")).messages()


@pytest.mark.parametrize("function", [5, "x", int, None])
def test_only_a_function_is_a_tool(function: Any) -> None:
    with pytest.raises(OutputTypeError):
        Tool(function)


@pytest.mark.parametrize("timeout_s", [0, -1, "soon", float("nan")])
def test_a_tool_s_time_is_a_number_above_0(timeout_s: Any) -> None:
    with pytest.raises(InvalidParameterError):
        tool(timeout_s=timeout_s)(shout)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"require_call": True, "limits": AgentLimits(max_turns=1)}, UsageError),
        ({"limits": {"max_turns": 1}}, UsageError),
        ({"max_token": 5}, InvalidParameterError),
    ],
)
def test_an_agent_that_can_not_be_as_asked_is_refused(
    scripted: Scripted, options: dict[str, Any], error: type[RametError]
) -> None:
    @program
    def acts(s: State) -> Any:
        s.user("Act.")
        return s.tools([shout], **options)

    backend = scripted(default='{"answer": "x"}')
    with pytest.raises(error):
        acts.run(backend=backend)
    assert backend.calls == []


@pytest.mark.parametrize("backend", [ScriptedBackend, 5, "http://here"])
def test_what_is_no_backend_is_refused(backend: Any) -> None:
    with pytest.raises(UsageError):
        asks.run(backend=backend)


def shout(text: str) -> str:
    """In capitals."""
    return text.upper()
