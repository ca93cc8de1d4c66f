"""``Request.landing``: what closes an output gains likelihood as its budget is used up."""

from __future__ import annotations

import json

import pytest

from ramet.grammars import JsonSchema
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

NOTE = JsonSchema(
    {
        "type": "object",
        "properties": {"note": {"type": "string"}},
        "required": ["note"],
        "additionalProperties": False,
    },
    whitespace="none",
)


@pytest.fixture(scope="module", params=[0, 4], ids=["no drafts", "drafts"])
def engine(request):
    """An engine whose model says random things."""
    tokenizer = scripted_tokenizer()
    config = EngineConfig(max_draft_len=request.param)
    with Engine(ScriptedModel(tokenizer), tokenizer, config) as engine:
        yield engine
        engine.check()


def run(engine: Engine, landing: float | None, seed: int, **fields):
    texts = enumerate(engine.tokenizer.vocabulary)
    quotes = {i: -4.0 for i, text in texts if b'"' in (text or b"")}
    params = SamplingParams(**{"max_tokens": 60, "seed": seed, "logit_bias": quotes} | fields)
    request = Request(
        prompt_token_ids=(65,), params=params, constraint=NOTE, complete=True, landing=landing
    )
    return engine.submit(request).result(timeout=60)


def test_outputs_end_before_they_are_forced_to(engine):
    cut = [run(engine, None, seed) for seed in range(6)]
    soft = [run(engine, 0.5, seed) for seed in range(6)]
    for done in (*cut, *soft):
        assert json.loads(done.text).keys() == {"note"}
    assert sum(done.usage.completion_forced_tokens > 0 for done in cut) > 3
    assert sum(done.usage.completion_forced_tokens > 0 for done in soft) < 3


def test_the_first_part_of_the_output_is_as_it_was(engine):
    plain, soft = run(engine, None, 1), run(engine, 0.5, 1)
    count = next(
        i
        for i, (a, b) in enumerate(zip(plain.tokens, soft.tokens, strict=False))
        if a.token_id != b.token_id
    )
    assert count >= 30
    late = run(engine, 0.9, 1)
    assert late.text[:40] == plain.text[:40]


def test_a_landing_repeats_with_its_seed_and_adds_to_a_bias(engine):
    assert run(engine, 0.3, 5).text == run(engine, 0.3, 5).text
    texts = enumerate(engine.tokenizer.vocabulary)
    closed_out = {i: -100.0 for i, text in texts if b'"' in (text or b"")}
    held_open = [run(engine, 0.5, seed, logit_bias=closed_out) for seed in range(3)]
    assert all(done.usage.completion_forced_tokens for done in held_open)


def test_letters_are_never_pulled_in(engine):
    schema = {"type": "string", "minLength": 30}
    params = SamplingParams(max_tokens=60, seed=2)
    request = Request(
        prompt_token_ids=(65,), params=params, constraint=JsonSchema(schema), complete=True,
        landing=0.0,
    )  # fmt: skip
    text = json.loads(engine.submit(request).result(timeout=60).text)
    assert text.count("0") < 20  # of which the shortest completion would be made


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"complete": False, "landing": 0.5}, "landing needs complete"),
        ({"complete": True, "landing": 1.0}, "at least 0 and below 1"),
        ({"complete": True, "landing": "half"}, "landing"),
    ],
)
def test_what_means_nothing_is_refused(engine, fields, message):
    with pytest.raises(InvalidParameterError, match=message):
        engine.submit(Request(prompt_token_ids=(65,), constraint=NOTE, **fields)).result()


def test_it_is_a_field_of_the_http_api(serve):
    server = serve([Script(["word "], repeat=True)][0])
    schema = {"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]}
    body = {"prompt": "x", "json_schema": schema, "max_tokens": 40}
    for landing in (True, 0.25):
        own = {"complete": True, "landing": landing}
        answer = server.http.post("/v1/completions", json=body | {"ramet": own}).json()
        assert json.loads(answer["choices"][0]["text"]).keys() == {"n"}
    for own in ({"landing": True}, {"landing": 1.5, "complete": True}):
        answer = server.http.post("/v1/completions", json=body | {"ramet": own})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"].startswith("ramet.landing")
