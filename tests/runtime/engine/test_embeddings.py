"""Prompts as vectors: the same ones however they are cut, shared, preempted or cached."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import Regex
from ramet.runtime.api.errors import ContextLengthError, InvalidParameterError, RametError
from ramet.runtime.api.events import Embedding, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import ScriptedModel, scripted_states
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

PROMPT = tuple(range(40, 100))


def expected(prompt, pooling):
    """The definition: the sum in order, from the first token that counts, at length 1."""
    states = scripted_states(np.array(prompt), np.arange(len(prompt))).astype(np.float64)
    total = np.zeros(states.shape[1])
    for state in states if pooling == "mean" else states[-1:]:
        total = total + state
    return (total / np.sqrt(np.square(total).sum())).astype(np.float32)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_prompt_becomes_a_unit_vector(make_engine, pooling):
    engine = make_engine()
    stream = engine.submit(Request(prompt_token_ids=PROMPT, pooling=pooling))
    done = stream.result(10)
    np.testing.assert_array_equal(done.embedding, expected(PROMPT, pooling))
    assert done.embedding.dtype == np.float32
    assert np.linalg.norm(done.embedding) == pytest.approx(1)
    assert done.finish_reason == "stop"
    assert done.text == ""
    assert (done.usage.prompt_tokens, done.usage.completion_tokens) == (len(PROMPT), 0)


def test_its_vector_is_the_only_event_before_the_end(make_engine):
    events = list(make_engine().submit(Request(prompt_token_ids=(7,), pooling="mean")))
    assert [type(event) for event in events] == [Embedding, Finished]


def test_what_was_computed_is_shared_but_a_mean_needs_every_state(make_engine):
    engine = make_engine()

    def cached(**fields):
        done = engine.submit(Request(prompt_token_ids=PROMPT, **fields)).result(10)
        return done.usage.cached_tokens

    assert cached(pooling="mean") == 0
    assert cached(pooling="mean") == 0
    assert cached(pooling="last") == len(PROMPT) - 1
    assert cached(params=SamplingParams(max_tokens=1)) == len(PROMPT) - 1


TOKENS = st.integers(32, 90)
PARTS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 40),
        st.lists(TOKENS, min_size=1, max_size=30),
        st.sampled_from(["mean", "last", None]),
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(PARTS, st.integers(4, 40), st.integers(6, 12), st.integers(0, 3))
def test_any_company_and_any_pool_give_the_same_vectors(parts, budget, num_pages, max_draft_len):
    tokenizer = scripted_tokenizer()
    runner = ScriptedModel(tokenizer, page_size=8, num_pages=num_pages, max_context_len=48)
    config = EngineConfig(
        max_num_seqs=4, max_tokens_per_step=budget, max_draft_len=max_draft_len, seed=0
    )
    prompts: list[tuple[int, ...]] = []
    for source, shared, own, _ in parts:
        prefix = prompts[source % len(prompts)][:shared] if prompts else ()
        prompts.append((*prefix, *own)[:40])
    greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    with Engine(runner, tokenizer, config) as engine:
        streams = [
            engine.submit(
                Request(prompt_token_ids=prompt, pooling=pooling)
                if pooling
                else Request(prompt_token_ids=prompt, params=greedy)
            )
            for prompt, (*_, pooling) in zip(prompts, parts, strict=True)
        ]
        for stream, prompt, (*_, pooling) in zip(streams, prompts, parts, strict=True):
            done = stream.result(30)
            if pooling:
                np.testing.assert_array_equal(done.embedding, expected(prompt, pooling))
            else:
                assert done.token_ids == runner.continuation(prompt, 6)
        engine.check()


def test_a_preempted_prompt_is_not_counted_twice(make_engine):
    config = EngineConfig(max_tokens_per_step=2, max_num_seqs=2)
    engine = make_engine(config=config, page_size=8, num_pages=10, max_context_len=64)
    greedy = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    long = engine.submit(Request(prompt_token_ids=(33,) * 24, params=greedy, priority=1))
    stream = engine.submit(Request(prompt_token_ids=PROMPT[:40], pooling="mean"))
    np.testing.assert_array_equal(stream.result(10).embedding, expected(PROMPT[:40], "mean"))
    assert len(long.result(10).token_ids) == 30
    assert engine.stats().num_preemptions > 0


def test_a_fault_in_a_step_costs_only_whose_it_is(make_engine):
    def fail(batch):
        if 99 in batch.token_ids:
            raise ValueError("no such thing")

    engine = make_engine(before_step=fail)
    prompts = [(50, 51, 52), (50, 99), (60, 61)]
    streams = [engine.submit(Request(prompt_token_ids=p, pooling="mean")) for p in prompts]
    with pytest.raises(RametError, match="no such thing"):
        streams[1].result(10)
    for index in (0, 2):
        np.testing.assert_array_equal(
            streams[index].result(10).embedding, expected(prompts[index], "mean")
        )


def test_the_whole_context_may_be_read(make_engine):
    engine = make_engine(max_context_len=len(PROMPT))
    done = engine.submit(Request(prompt_token_ids=PROMPT, pooling="mean")).result(10)
    np.testing.assert_array_equal(done.embedding, expected(PROMPT, "mean"))
    with pytest.raises(ContextLengthError):
        engine.submit(Request(prompt_token_ids=(*PROMPT, 40), pooling="mean"))


@pytest.mark.parametrize(
    "fields",
    [
        {"pooling": "max"},
        {"pooling": "mean", "params": SamplingParams(max_tokens=3)},
        {"pooling": "mean", "constraint": Regex("a")},
    ],
)
def test_what_makes_no_sense_is_refused_by_name(make_engine, fields):
    with pytest.raises(InvalidParameterError) as raised:
        make_engine().submit(Request(prompt_token_ids=PROMPT, **fields))
    assert raised.value.param == "pooling"


def test_a_runner_without_hidden_states_refuses_by_name(tokenizer):
    class Mute(ScriptedModel):
        """A runner that has no hidden states."""

        has_hidden_states = False

    with Engine(Mute(tokenizer), tokenizer) as engine:
        with pytest.raises(InvalidParameterError) as raised:
            engine.submit(Request(prompt_token_ids=PROMPT, pooling="mean"))
        assert raised.value.code == "unsupported_parameter"
        assert "Mute" in raised.value.message
