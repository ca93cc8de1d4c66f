"""Batches go where prompts are shared; constraints that can't be are refused where they stand."""

from __future__ import annotations

import random
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from ramet.lang import ScriptedBackend, State, gen, program
from ramet.lang.base.errors import UsageError
from ramet.lang.batching import sharing_order
from ramet.runtime.api.errors import InvalidConstraintError


@program
def ask(s: State, document: str, question: str) -> str:
    s.user(f"{document}\n{question}")
    return f"{question} {s.gen('answer', max_tokens=4)}"


def test_a_batch_starts_where_prompts_are_shared_and_comes_back_in_its_own_order() -> None:
    batch = [
        {"document": f"document {d}", "question": f"question {q}"}
        for q in range(5)
        for d in range(3)
    ]
    backend = ScriptedBackend(default="yes")
    runs = ask.run_batch(batch, backend=backend, max_concurrency=1)
    assert [run.result for run in runs] == [f"{item['question']} yes" for item in batch]
    documents = [call.prompt.text.split("\n")[0] for call in backend.calls]
    assert documents == sorted(documents)
    ask.run_batch(batch, backend=backend, max_concurrency=1, reorder=False)
    unordered = [call.prompt.text.split("\n")[0] for call in backend.calls[15:]]
    assert unordered == [item["document"] for item in batch]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "xy", 1]))))
def test_an_order_is_a_permutation_that_keeps_equals_together(batch: list[dict[str, Any]]) -> None:
    order = sharing_order(batch)
    assert sorted(order) == list(range(len(batch)))
    seen: list[dict[str, Any]] = []
    for index in order:
        if batch[index] in seen:
            assert batch[index] == seen[-1]
        seen.append(batch[index])
    shuffled = list(batch)
    random.Random(0).shuffle(shuffled)
    again = [shuffled[index] for index in sharing_order(shuffled)]
    assert [batch[index] for index in order] == again


def test_one_bad_item_stops_a_batch_before_it_starts() -> None:
    backend = ScriptedBackend(default="yes")
    with pytest.raises(UsageError, match="item 1"):
        ask.run_batch([{"document": "d", "question": "q"}, {"document": "d"}], backend=backend)
    assert not backend.calls


class Coded(BaseModel):
    code: Annotated[str, Field(json_schema_extra={"pattern": "(a"})]


@pytest.mark.parametrize(
    ("argument", "options"),
    [
        ("regex", {"regex": "("}),
        ("regex", {"regex": "(?<=x)a"}),
        ("json_schema", {"json_schema": {"type": "strin"}}),
        ("json_schema", {"json_schema": {"$ref": "#/nowhere"}}),
        ("json_schema", {"json_schema": {"properties": {"a": {"pattern": "["}}}}),
        ("json_schema", {"json_schema": {"type": "integer", "minimum": 3, "maximum": 2}}),
        ("ebnf", {"ebnf": "root ::= ("}),
        ("type", {"type_": Coded}),
        ("dtype", {"dtype": Coded}),
    ],
)
def test_a_bad_constraint_fails_at_the_call_and_nothing_is_sent(
    argument: str, options: dict[str, Any]
) -> None:
    backend = ScriptedBackend(default="yes")
    reached: list[str] = []

    @program
    def bad(s: State) -> None:
        s += "a"
        s.gen("fine")
        reached.append("before")
        s.append(gen("v", **options))
        reached.append("after")

    with pytest.raises(InvalidConstraintError, match=f"^{argument}: ") as caught:
        bad.run(backend=backend)
    assert caught.value.param == argument
    assert reached == ["before"]
    assert not backend.calls
