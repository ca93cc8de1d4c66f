"""Guessing ahead: fewer steps, the very same tokens."""

from __future__ import annotations

import random

import pytest

from ramet.grammars import Regex
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import EngineConfig
from ramet.runtime.scheduler import SchedulerConfig
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.simulation import Simulation

GUESSING = EngineConfig(max_draft_len=6)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("logprobs", [None, 1])
def test_a_repeated_request_takes_a_fraction_of_the_steps(make_engine, temperature, logprobs):
    params = SamplingParams(
        temperature=temperature, seed=5, max_tokens=60, ignore_eos=True, logprobs=logprobs
    )
    plain = make_engine().generate("once upon a time", params)
    engine = make_engine(config=GUESSING)
    first = engine.generate("once upon a time", params)
    steps = engine.stats().num_steps
    second = engine.generate("once upon a time", params)
    assert first.tokens == second.tokens == plain.tokens
    assert engine.stats().num_steps - steps < 25
    assert engine.stats().num_accepted_tokens > 35


def test_text_that_repeats_itself_is_guessed_from_itself(make_engine):
    script = [Script(["the rain in spain, "], repeat=True)]
    params = SamplingParams(temperature=0, max_tokens=120, stop=("never",))
    plain = make_engine(script).generate("x", params)
    engine = make_engine(script, config=GUESSING)
    assert engine.generate("x", params).token_ids == plain.token_ids
    assert engine.stats().num_steps < 70


def test_guesses_under_a_grammar_are_held_to_it(make_engine):
    constraint = Regex(r"(ab|ba)( (ab|ba)){20}")
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=200)
    plain = make_engine().generate("x", params, constraint=constraint)
    engine = make_engine(config=GUESSING)
    for _ in range(2):
        assert engine.generate("x", params, constraint=constraint).text == plain.text
    assert engine.stats().num_accepted_tokens > 0


def test_penalties_and_bad_words_keep_their_meaning(make_engine):
    for extra in ({"presence_penalty": 1.0}, {"bad_words": ("e",)}, {"min_tokens": 30}):
        params = SamplingParams(temperature=0.7, seed=1, max_tokens=50, **extra)
        plain = make_engine().generate("x", params)
        engine = make_engine(config=GUESSING)
        for _ in range(2):
            assert engine.generate("x", params).tokens == plain.tokens


def test_answers_of_one_form_are_guessed_from_the_ones_before(make_engine):
    text = "The customer of this order is a regular one, and the total is right."
    params = SamplingParams(temperature=0, max_tokens=len(text))
    engine = make_engine([Script([text], repeat=True)], config=EngineConfig(max_draft_len=16))
    first = engine.generate("first: ", params)
    before = engine.stats()
    again = engine.generate("another one: ", params)
    after = engine.stats()
    assert again.text == first.text
    assert after.num_steps - before.num_steps < 0.5 * len(text)
    assert after.num_accepted_tokens > before.num_accepted_tokens


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_ends_with_the_same_tokens(seed):
    rng = random.Random(seed)
    prompts = [[rng.randrange(60, 64) for _ in range(rng.randint(1, 30))] for _ in range(4)]
    requests = [
        Request(
            prompt_token_ids=tuple(rng.choice(prompts)),
            params=SamplingParams(temperature=0, max_tokens=rng.randint(1, 40), ignore_eos=True),
        )
        for _ in range(24)
    ]
    config = SchedulerConfig(
        max_num_seqs=5,
        max_tokens_per_step=24,
        max_logits_per_step=24,
        max_draft_len=5,
    )
    sim = Simulation(config, num_pages=22, page_size=4)
    sequences = []
    for request in requests:
        sequences.append(sim.add(request))
        for _ in range(rng.randint(0, 3)):
            sim.step()
            sim.scheduler.check()
    sim.drain()
    sim.scheduler.check()
    for sequence in sequences:
        prompt = sequence.request.prompt_token_ids
        expected = sim.runner.continuation(prompt, sequence.num_output)
        assert sequence.output.tolist() == expected
        assert sequence.num_output == sequence.params.max_tokens
    assert sim.scheduler.stats.num_accepted_tokens > 0
    assert sim.scheduler.stats.num_preemptions > 0


def test_guessing_stops_where_it_fails(make_engine):
    engine = make_engine(config=GUESSING)
    params = SamplingParams(temperature=3.0, max_tokens=400, ignore_eos=True)
    for seed in range(3):
        engine.generate("the same words " * 10, SamplingParams(**_with_seed(params, seed)))
    stats = engine.stats()
    assert stats.num_drafted_tokens < 0.2 * stats.num_output_tokens


def _with_seed(params: SamplingParams, seed: int) -> dict[str, object]:
    return {
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
        "ignore_eos": params.ignore_eos,
        "seed": seed,
    }
