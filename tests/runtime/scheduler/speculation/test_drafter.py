"""Drafts: from which text they are copied, and their acceptance rates."""

from __future__ import annotations

import numpy as np
import pytest

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.scheduler import SchedulerConfig, SequenceState
from ramet.runtime.scheduler.speculation.drafter import Drafter
from ramet.runtime.scheduler.speculation.step_cost import StepCost
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.simulation import Simulation


def simulation(max_tokens: int = 64, max_draft_len: int = 16, **config) -> Simulation:
    limits = {"max_num_seqs": 8, "max_tokens_per_step": max_tokens, "max_logits_per_step": 64}
    settings = SchedulerConfig(max_draft_len=max_draft_len, **(limits | config))
    return Simulation(settings, num_pages=400, page_size=4)


def request(prompt, max_tokens=8, **kwargs) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return Request(prompt_token_ids=tuple(prompt), params=params, **kwargs)


def write(sequence, token_ids) -> None:
    """Has a sequence that isn't scheduled grow."""
    for token_id in token_ids:
        sequence.append(token_id)


def feed(drafter, sequence, token_ids) -> None:
    """Token by token, as decoding does."""
    for token_id in token_ids:
        drafter.propose(sequence, 4)
        sequence.append(token_id)


@pytest.fixture
def sim():
    return simulation()


@pytest.fixture
def drafter(sim):
    return Drafter(sim.cache, 16)


def test_its_own_text_is_followed_and_goes_round(sim, drafter):
    sequence = sim.add(request([1, 2, 3, 9, 1, 2, 3]))
    draft = drafter.propose(sequence, 8)
    assert draft.token_ids[:6] == [9, 1, 2, 3, 9, 1]
    assert draft.acceptance == sorted(draft.acceptance, reverse=True)


def test_acceptance_rates_are_learned_without_drafting(sim, drafter):
    sequence = sim.add(request([5, 6, 7, 8, 5, 6, 7, 8], max_tokens=400))
    before = drafter.propose(sequence, 4).acceptance[0]
    feed(drafter, sequence, [5, 6, 7, 8] * 20)
    assert drafter.propose(sequence, 4).acceptance[0] > max(before, 0.97)
    # Each time it comes to the same place it goes on differently.
    alike = list(range(50, 58))
    other = sim.add(request([40], max_tokens=600))
    for i in range(40):
        feed(drafter, other, [*alike, 100 + i])
    feed(drafter, other, alike)
    draft = drafter.propose(other, 4)
    assert not draft.acceptance or draft.acceptance[0] < 0.2


def test_one_sequence_lowers_acceptance_rates_of_others_only_briefly(sim, drafter):
    loops = sim.add(request([5, 6, 7, 8, 5, 6, 7, 8], max_tokens=400))
    feed(drafter, loops, [5, 6, 7, 8] * 10)
    misleads = sim.add(request([20, 21, 22, 23], max_tokens=900))
    feed(drafter, misleads, [token for i in range(99) for token in (20, 21, 22, 23, 100 + i)])
    assert drafter.propose(loops, 4).acceptance[0] > 0.9


def test_others_of_the_namespace_are_followed_and_no_others(sim, drafter):
    first = sim.add(request(range(30, 60), max_tokens=90))
    feed(drafter, first, [101, 102, 103, 104, 105, 106, 107])
    drafter.drop(first)
    again = sim.add(request(range(70, 90), max_tokens=90))
    feed(drafter, again, [101, 102, 103, 104])
    assert drafter.propose(again, 3).token_ids[:2] == [105, 106]
    foreign = sim.add(request(range(70, 90), max_tokens=90, cache_salt="theirs"))
    feed(drafter, foreign, [101, 102, 103, 104])
    assert drafter.propose(foreign, 3).token_ids == []


def test_a_text_that_is_caught_up_with_is_followed_no_further(sim, drafter):
    sequences = [sim.add(request(range(30, 60), max_tokens=90)) for _ in range(2)]
    for token_id in range(100, 120):
        for sequence in sequences:
            drafter.propose(sequence, 4)
            sequence.append(token_id)
    ahead, behind = sequences
    write(ahead, [120, 121])
    drafter.propose(ahead, 4)
    assert drafter.propose(behind, 8).token_ids in ([120, 121], [120])


def test_drafts_take_only_the_budget_that_prompts_leave():
    """While prompts wait, steps hold what they hold without guesses."""
    taken = {}
    for max_draft_len in (0, 16):
        sim = simulation(max_tokens=32, max_draft_len=max_draft_len)
        loops = sim.add(request([1, 2, 3, 4] * 6, max_tokens=200))
        for _ in range(6):
            sim.step()
        prompts = [sim.add(request(np.arange(60) + 70 + i, max_tokens=2)) for i in range(5)]
        first = []
        while not sim.scheduler.idle:
            sim.step()
            first.extend(s.first_token_time for s in prompts if s.first_token_time is not None)
        assert loops.num_output == 200
        start = prompts[0].submit_time
        taken[max_draft_len] = [s.first_token_time - start for s in prompts]
    assert taken[16] == taken[0]


def test_texts_that_differ_are_read_in_as_many_steps_and_tokens_as_without_drafts():
    counts = []
    for max_draft_len in (0, 16):
        sim = simulation(max_draft_len=max_draft_len)
        for i in range(8):
            sim.add(request([60 + i, 70 + i, 80 + i], max_tokens=100))
        sim.drain()
        stats = sim.scheduler.stats
        counts.append((stats.num_steps, stats.num_computed_tokens))
    (steps, tokens), (guessing_steps, guessing_tokens) = counts
    assert guessing_steps <= steps
    assert guessing_tokens <= 1.1 * tokens


def test_guesses_make_no_step_last_much_longer():
    sim = simulation(max_tokens=256)
    sim.runner = sim.core._runner = ScriptedModel(
        sim.tokenizer, [Script(["abcd"], repeat=True)], num_pages=400, page_size=4
    )
    for i in range(8):
        sim.add(request([60 + i, 70 + i, 80 + i], max_tokens=200))
    stats, sizes = sim.scheduler.stats, []
    while not sim.scheduler.idle:
        before = stats.num_computed_tokens
        sim.step()
        sizes.append(stats.num_computed_tokens - before)
    cost = StepCost()  # as it is where steps are not timed
    (without, _), (longest, _) = cost.expected(8, 8), cost.expected(max(sizes), 8)
    assert 2.0 * without < longest <= 3.5 * without


def test_guesses_are_fewer_where_somebody_comes_with_every_step():
    longest = []
    for somebody_comes in (False, True):
        sim = simulation(max_tokens=64)
        sim.runner = sim.core._runner = ScriptedModel(
            sim.tokenizer, [Script(["abcd"], repeat=True)], num_pages=400, page_size=4
        )
        loops = sim.add(request([1, 2, 3], max_tokens=300))
        tokens = []
        while loops.state is not SequenceState.FINISHED:
            if somebody_comes:
                sim.add(request([20, 21], max_tokens=1))
            before = loops.num_output
            sim.step()
            tokens.append(loops.num_output - before)
        longest.append(max(tokens))
        sim.drain()
    assert longest[0] == 17
    assert 1 < longest[1] < longest[0] - 3
