"""Constraints and scores are equal in process and on a server."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from ramet.grammars.constraints.serialize import content_key
from ramet.grammars.constraints.writing import for_writing
from ramet.lang import NodeFailedError, State, choice, connect, ebnf, json, program, regex, replay
from ramet.lang.backends.dialects import RAMET
from ramet.lang.backends.engine import _as_served
from ramet.lang.graph.nodes import SelectMethod
from ramet.lang.types.options import split_options
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.protocol.response_format import ConstraintFields
from ramet.runtime.tokenizer import ChatTemplate


class Report(BaseModel):
    title: str
    pages: int = 0


SCHEMA = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "integer"}}}
FORMS: list[tuple[Any, dict[str, Any]]] = [
    (Report, {}),
    (list[int], {}),
    (int, {}),
    (json(SCHEMA), {}),
    (json(), {}),
    (regex(r"\d+"), {}),
    (choice("a", "b"), {}),
    (ebnf('root ::= "a"'), {}),
    ("a" + regex(r"\d") + json(Report), {}),
    (None, {"json_schema": SCHEMA}),
]


@pytest.mark.parametrize(("type_", "options"), FORMS)
def test_a_server_holds_a_model_to_what_an_engine_does(type_: Any, options: Any) -> None:
    _, output = split_options(type_, options)
    assert output.constraint is not None
    fields = RAMET.constraint_fields("ramet", output.constraint, "0")
    requested = ConstraintFields(**fields).requested_constraint()
    assert requested is not None
    served = for_writing(requested.constraint)
    assert content_key(served) == content_key(_as_served(output.constraint))


@program
def picks(s: State, before: str, choices: list[str], method: Any) -> str:
    if before:
        s += before
    return s.select("x", choices, method=method).value


@pytest.mark.parametrize("method", get_args(SelectMethod))
@pytest.mark.parametrize("before", ["", "Hello, "])
def test_choices_have_the_same_scores_with_and_without_a_prompt(
    scripted_engine, served, before: str, method: str
) -> None:
    engine, server = scripted_engine(), connect(served())
    for choices in (["a", "aa"], ["Yes", "Yes, but no", "No"], ["\u00e9", "\u00e9a"]):
        local, remote = (
            picks.run(before, choices, method, backend=backend) for backend in (engine, server)
        )
        scores = local.meta("x").choice_scores
        assert set(scores) == set(choices)
        assert all(map(math.isfinite, scores.values()))
        assert remote.meta("x").choice_scores == pytest.approx(scores)
        assert remote.result == local.result


@pytest.mark.parametrize("served_by", ["engine", "server"])
def test_template_variables_reach_the_chat_template(
    scripted_engine, served, served_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    render = ChatTemplate.render

    def spy(self: ChatTemplate, messages: Any, **options: Any) -> Any:
        seen.append(dict(options.get("variables") or {}))
        return render(self, messages, **options)

    monkeypatch.setattr(ChatTemplate, "render", spy)

    @program
    def asks(s: State) -> None:
        s.user("Which?")
        s.gen("a", max_tokens=2)
        s.user("And?")
        s.select("b", ["x", "y"])

    variables = {"enable_thinking": False}
    backend = scripted_engine() if served_by == "engine" else connect(served())
    run = asks.run(backend=backend, chat_template_kwargs=variables)
    assert len(seen) >= 2
    assert all(each == variables for each in seen)
    seen.clear()
    assert replay(run.trace, asks, backend=backend).is_same
    assert all(each == variables for each in seen)


def test_template_variables_are_refused_where_they_can_not_be_sent() -> None:
    @program
    def asks(s: State) -> None:
        s.user("Which?")
        s.gen("a")

    backend = connect("http://127.0.0.1:9", dialect="openai", model="m")
    with pytest.raises(NodeFailedError, match="chat_template_kwargs"):
        asks.run(backend=backend, chat_template_kwargs={"x": 1})
    with pytest.raises(InvalidParameterError, match="by name"):
        asks.run(backend=backend, chat_template_kwargs=["x"])
