"""Batches go where prompts are shared; constraints that can't be are refused where they stand."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from ramet.lang import NodeFailedError, ScriptedBackend, State, UnsupportedError, gen, program
from ramet.lang.backends.dialects import OPENAI, RAMET
from ramet.lang.base.errors import UsageError
from ramet.lang.batching import sharing_order
from ramet.lang.types.options import SamplingOptions
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.engine import Engine


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
def test_a_bad_constraint_is_refused_and_its_argument_named(
    argument: str, options: dict[str, Any], scripted_engine: Callable[..., Engine]
) -> None:
    @program
    def bad(s: State) -> None:
        s += "a"
        s.gen("fine", max_tokens=2)
        s.append(gen("v", **options))

    with pytest.raises(InvalidConstraintError, match=f"^{argument}: ") as caught:
        bad.graph()
    assert caught.value.param == argument
    for backend in (ScriptedBackend(default="yes"), scripted_engine()):
        with pytest.raises(NodeFailedError, match=f"'v'.*{argument}: ") as failed:
            bad.run(backend=backend)
        cause = failed.value.__cause__
        assert isinstance(cause, InvalidConstraintError)
        assert cause.param == argument
        assert "fine" in failed.value.values


def test_declaring_a_typed_output_compiles_no_grammar() -> None:
    code = (
        "import sys; from ramet import connect, gen, regex;"
        "from ramet.lang.types.options import split_options;"
        "backend = connect('http://127.0.0.1:9', dialect='ramet');"
        "split_options(regex('[0-9]{4}'), {}); split_options(None, {'json_schema': {}});"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_sampling_parameter_of_the_engine_is_an_option_of_gen() -> None:
    own = {field.name for field in dataclasses.fields(SamplingParams)}
    assert SamplingOptions.__annotations__.keys() == own - {"prompt_logprobs"}  # select scores
    assert RAMET.fields == SamplingOptions.__annotations__.keys()
    assert OPENAI.fields < RAMET.fields


def test_a_generation_refuses_to_score_its_prompt(scripted_engine: Callable[..., Engine]) -> None:
    @program
    def scored(s: State) -> None:
        s += "a"
        s.append(gen("v", prompt_logprobs=1))  # type: ignore[call-arg]

    with pytest.raises(UnsupportedError, match="prompt_logprobs"):
        scored.run(backend=scripted_engine())
