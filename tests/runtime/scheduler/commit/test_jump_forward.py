"""Text that a grammar forces: fewer steps, the tokenizer's own tokens, nothing else changed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import Choice, JsonSchema, Regex
from ramet.runtime.api.errors import InvalidConstraintError, ModelLoadError, NoTokenAllowedError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.scheduler.commit.jump_forward import JumpForward
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

GREEDY = SamplingParams(temperature=0, max_tokens=80)
SCHEMA = {
    "type": "object",
    "properties": {"identifier": {"type": "integer"}, "description": {"enum": ["long", "short"]}},
    "required": ["identifier", "description"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model_tokenizer() -> Tokenizer:
    try:
        return read_tokenizer(GgufFile(locate_model("smollm2")))
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")


texts = st.text(st.sampled_from("abe {}\":,.'\n\t 019-_é你"), max_size=12)


@pytest.mark.model
@settings(max_examples=600, deadline=None)
@given(text=texts, following=texts)
def test_settled_tokens_stand_under_any_continuation(model_tokenizer, text, following):
    certain = text.encode()[: model_tokenizer.settled_len(text.encode())].decode()
    whole = model_tokenizer.encode(text + following)
    kept, length = [], 0
    for token_id in model_tokenizer.encode(text):
        length += len(model_tokenizer.token_bytes(token_id))
        if length > len(certain.encode()):
            break
        kept.append(token_id)
    assert whole[: len(kept)] == kept


def test_a_choice_is_over_once_it_is_decided(make_engine):
    engine = make_engine([Script(["absolutely not"])])
    done = engine.generate("x", GREEDY, constraint=Choice(("absolutely", "never ever")))
    assert done.text == "absolutely"
    assert done.usage.forced_tokens > 0
    assert engine.stats().num_steps == 1
    assert done.finish_reason == "stop"


def test_forced_tokens_are_what_the_tokenizer_makes_of_the_text(make_engine, tokenizer):
    engine = make_engine([Script(["truly"])])
    done = engine.generate("x", GREEDY, constraint=Regex("true and the other"))
    assert done.token_ids == tokenizer.encode("true and the other")


@pytest.mark.parametrize("logprobs", [None, 2])
def test_with_and_without_forcing_the_text_is_valid(make_engine, logprobs):
    params = SamplingParams(temperature=0, max_tokens=80, logprobs=logprobs)
    for forced in (True, False):
        engine = make_engine(config=EngineConfig(forced_tokens=forced))
        done = engine.generate("x", params, constraint=JsonSchema(SCHEMA, any_order=False))
        if done.finish_reason == "stop":
            assert set(json.loads(done.text)) == {"identifier", "description"}
        assert (done.usage.forced_tokens > 0) == forced
        assert done.usage.completion_tokens == len(done.tokens)
        if logprobs is not None:
            assert all(token.logprob is not None for token in done.tokens)


def test_what_is_forced_from_the_start_costs_no_step(make_engine):
    engine = make_engine()
    done = engine.generate("x", GREEDY, constraint=Regex("the one and only answer"))
    assert done.text == "the one and only answer"
    assert done.finish_reason == "stop"
    assert engine.stats().num_steps == 0
    assert engine.generate("x", GREEDY, constraint=Choice(("",))).text == ""


def test_forcing_stops_at_max_tokens(make_engine):
    engine = make_engine()
    params = SamplingParams(temperature=0, max_tokens=3)
    done = engine.generate("x", params, constraint=Choice(("a quite long text to say",)))
    assert (done.finish_reason, len(done.tokens)) == ("length", 3)


def test_bad_words_hold_against_the_grammar(make_engine):
    engine = make_engine([Script(["a open"])])
    params = SamplingParams(temperature=0, max_tokens=40, bad_words=("secret",))
    done = engine.generate("x", params, constraint=Regex("an? (open|secret) door"))
    assert "secret" not in done.text
    with pytest.raises(NoTokenAllowedError):
        engine.generate("x", params, constraint=Choice(("secret",)))


def test_a_bad_constraint_fails_alone(make_engine):
    engine = make_engine([Script(["fine"])])
    with pytest.raises(InvalidConstraintError) as caught:
        engine.generate("x", GREEDY, constraint=Regex("(["))
    assert caught.value.status == 400
    assert engine.generate("x", GREEDY).text == "fine"


@pytest.mark.model
def test_on_the_model_greedy_json_takes_fewer_steps():
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    steps = {}
    for forced in (True, False):
        config = EngineConfig(forced_tokens=forced, cache_bytes=32 << 20)
        with Engine.from_model("smollm2", config) as engine:
            done = engine.generate(
                "Answer as JSON: ", GREEDY, constraint=JsonSchema(SCHEMA, any_order=False)
            )
            assert set(json.loads(done.text)) == {"identifier", "description"}
            steps[forced] = engine.stats().num_steps
    assert steps[True] < steps[False]


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_follows_forced_text_is_drawn_as_if_the_text_had_been_given(temperature):
    """Same distribution to the bit, and from then on the same tokens."""
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    pattern = r"The capital of France is one of (many|few|the|those) [a-z]{3,9} [a-z]{3,9}"
    params = SamplingParams(temperature=temperature, seed=7, max_tokens=40, logprobs=8)
    question = "Tell me about France. "
    config = EngineConfig(cache_bytes=32 << 20, max_draft_len=0)
    with Engine.from_model("smollm2", config) as engine:
        done = engine.generate(question, params, constraint=Regex(pattern))
        num_forced = done.usage.forced_tokens
        forced = done.token_ids[:num_forced]
        text = engine.tokenizer.decode(forced)
        assert num_forced > 5
        assert pattern.startswith(text)
        assert forced == engine.tokenizer.encode(text)
    config = EngineConfig(cache_bytes=32 << 20, max_draft_len=0, forced_tokens=False)
    with Engine.from_model("smollm2", config) as engine:
        prompt = [*engine.tokenizer.encode(question), *forced]
        rest = engine.generate(prompt, params, constraint=Regex(pattern[len(text) :]))
    assert rest.tokens == done.tokens[num_forced:]


def test_long_texts_that_do_not_recur_are_evicted():
    tokenizer = scripted_tokenizer()
    forced = JumpForward(tokenizer, [tokenizer.token_bytes(i) for i in range(100)])
    for number in range(1_000):
        forced.encode(b"", f"{number} {'long ' * 800}".encode())
    assert sum(len(text) for _, text in forced._cache) < 1 << 20
