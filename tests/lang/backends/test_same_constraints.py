"""Promised: a model is held to the same, and choices are scored alike, in process and served."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from ramet.grammars.constraints.serialize import content_key
from ramet.grammars.constraints.writing import for_writing
from ramet.lang import State, choice, connect, ebnf, json, program, regex
from ramet.lang.backends.dialects import RAMET
from ramet.lang.backends.engine import _as_served
from ramet.lang.graph.nodes import SelectMethod
from ramet.lang.types.options import split_options
from ramet.runtime.server.protocol.constraints import ConstraintFields


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
