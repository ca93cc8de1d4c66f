"""``finish_reason`` ``stop`` under a constraint: only after valid text, whatever was to stop it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    FreeText,
    JsonSchema,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    compile_constraint,
)
from ramet.runtime.api.errors import NoTokenAllowedError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

NOTE = JsonSchema(
    {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]},
    whitespace="none",
)
CALL = Tag("<call>", NOTE, "</call>")
CHAT = StructuralTag(
    Series((FreeText(("<call>",)), Repeated(Series((CALL, FreeText(("<call>",)))))))
)


def stop(text: str = "", **fields: Any) -> SamplingParams:
    stops = (text,) if text else ()
    return SamplingParams(temperature=0, max_tokens=60, stop=stops, **fields)


@pytest.mark.parametrize("text", [",", "a, b", '"', "}", '{"no'])
def test_a_stop_string_inside_a_value_is_text(make_engine, text):
    engine = make_engine([Script(['{"note":"a, b"}'])])
    done = engine.generate("x", stop(text), constraint=NOTE)
    assert json.loads(done.text) == {"note": "a, b"}
    assert (done.finish_reason, done.matched_stop) == ("stop", None)


@pytest.mark.parametrize(("include", "text"), [(False, "12"), (True, "12-")])
def test_a_stop_string_ends_what_is_valid_then(make_engine, include, text):
    engine = make_engine([Script(["12-34-"], repeat=True)])
    pattern = Regex("([0-9]+-?)+")
    params = stop("-", include_stop_str_in_output=include)
    done = engine.generate("x", params, constraint=pattern)
    assert (done.text, done.finish_reason, done.matched_stop) == (text, "stop", "-")
    assert pattern.pattern
    assert compile_constraint(pattern, engine.vocabulary).match(done.text)


def test_free_text_stops_and_calls_do_not(make_engine):
    token_by_token = EngineConfig(forced_tokens=False)
    said = 'Well; <call>{"note":"a; b"}</call> so; it goes'
    engine = make_engine([Script([said])], token_by_token)
    done = engine.generate("x", stop("; "), constraint=CHAT)
    assert (done.text, done.matched_stop) == ("Well", "; ")
    engine = make_engine([Script([said.removeprefix("Well; ")])], token_by_token)
    done = engine.generate("x", stop("; "), constraint=CHAT)
    assert (done.text, done.matched_stop) == ('<call>{"note":"a; b"}</call> so', "; ")


def test_a_stop_token_ends_only_what_is_valid(make_engine):
    engine = make_engine([Script(['{"note":"n"}'])])
    (letter,) = engine.tokenizer.encode("n")
    done = engine.generate("x", stop(stop_token_ids=(letter,)), constraint=NOTE)
    assert json.loads(done.text) == {"note": "n"}
    engine = make_engine([Script(["12n3"])])
    done = engine.generate("x", stop(stop_token_ids=(letter,)), constraint=Regex("[0-9n]*"))
    assert (done.text, done.matched_stop) == ("12", letter)


@pytest.mark.parametrize("schema", [{"type": "boolean"}, {"enum": ["a"]}, {"type": "null"}])
def test_fewer_tokens_than_wanted_end_a_value_that_is_over(make_engine, schema):
    engine = make_engine()
    done = engine.generate(
        "x",
        SamplingParams(temperature=0, min_tokens=20, max_tokens=40),
        constraint=JsonSchema(schema, whitespace="none"),
    )
    json.loads(done.text)
    assert done.finish_reason == "stop"


@pytest.fixture(scope="module")
def engine():
    tokenizer = scripted_tokenizer(b'":[{', b'","', b'{"note":"', "; b")
    config = EngineConfig(max_draft_len=3)
    with Engine(ScriptedModel(tokenizer), tokenizer, config) as engine:
        yield engine
        engine.check()


CONSTRAINTS = [NOTE, CHAT, Regex("([0-9a-f]{2};)*"), JsonSchema({"type": ["integer", "array"]})]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    constraint=st.sampled_from(CONSTRAINTS),
    stops=st.lists(st.text(st.sampled_from('a;",0{}]:'), min_size=1, max_size=2), max_size=2),
    stop_tokens=st.lists(st.integers(32, 126), max_size=3),
    include=st.booleans(),
    min_tokens=st.sampled_from([0, 0, 5, 30]),
    bias=st.sampled_from([0, 8]),
    seed=st.integers(0, 99),
)
def test_stop_is_said_only_after_valid_text(
    engine: Engine, constraint, stops, stop_tokens, include, min_tokens, bias, seed
) -> None:
    params = SamplingParams(
        max_tokens=40,
        min_tokens=min_tokens,
        stop=tuple(stops),
        stop_token_ids=tuple(stop_tokens),
        include_stop_str_in_output=include,
        logit_bias=dict.fromkeys([*stop_tokens, *engine.tokenizer.eos_ids], float(bias)),
        seed=seed,
    )
    try:
        done = engine.generate("?", params, constraint=constraint)
    except NoTokenAllowedError:
        return
    if done.finish_reason == "stop":
        grammar = compile_constraint(constraint, engine.vocabulary)
        assert grammar.match(done.text), (done.text, done.matched_stop)
