"""The draft budget, the cost of steps, and the n-gram index."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.scheduler.sequence.ngram_index import (
    MATCH_LEN,
    NgramIndex,
    SharedNgramIndex,
    match_len,
)
from ramet.runtime.scheduler.speculation.draft_budget import draft_lens
from ramet.runtime.scheduler.speculation.step_cost import StepCost

chances = st.lists(st.floats(0.05, 1.0), max_size=3).map(
    lambda rates: list(itertools.accumulate(rates, lambda before, rate: before * rate))
)


def roots_of_rates(odds, lens, num_rows, step_cost, token_cost):
    """The sum of the rates' square roots, for rows without a draft as well."""
    tokens = [1.0 + sum(each[:count]) for each, count in zip(odds, lens, strict=True)]
    seconds = step_cost + token_cost * sum(lens)
    roots = sum(math.sqrt(each / seconds) for each in tokens)
    return roots + (num_rows - len(tokens)) / math.sqrt(seconds)


@settings(max_examples=200, deadline=None)
@given(
    odds=st.lists(chances, max_size=4),
    others=st.integers(0, 6),
    step_cost=st.floats(1.0, 50.0),
    limit=st.integers(0, 9),
)
def test_no_other_lengths_give_more(odds, others, step_cost, limit):
    num_rows = len(odds) + others
    chosen = draft_lens(odds, num_rows, step_cost, 1.0, limit)
    assert sum(chosen) <= limit
    assert all(count <= len(each) for count, each in zip(chosen, odds, strict=True))
    reached = roots_of_rates(odds, chosen, num_rows, step_cost, 1.0)
    for lens in itertools.product(*(range(len(each) + 1) for each in odds)):
        if sum(lens) <= limit:
            other = roots_of_rates(odds, lens, num_rows, step_cost, 1.0)
            assert other <= reached * (1 + 1e-12)


def test_rows_that_are_alike_get_the_most_tokens_a_second():
    sure = [1.0] * 16
    assert draft_lens([sure] * 4, 4, 8.0, 1.0, 100) == [16] * 4
    assert draft_lens([[0.2] * 1] * 4, 4, 8.0, 1.0, 100) == [0] * 4


def test_one_that_repeats_itself_does_not_take_the_step_from_the_others():
    alone = draft_lens([[1.0] * 16], 1, 4.0, 0.5, 100)
    beside_others = draft_lens([[1.0] * 16], 16, 12.0, 0.5, 100)
    assert alone == [16]
    assert 1 <= beside_others[0] <= 3


@settings(max_examples=60, deadline=None)
@given(
    costs=st.tuples(st.floats(1, 20), st.floats(0.2, 3), st.floats(0.05, 1)),
    unit=st.sampled_from([1e-4, 1e-2]),
    seed=st.integers(0, 1000),
)
def test_costs_are_learned_from_steps_of_all_sizes(costs, unit, seed):
    rng = np.random.default_rng(seed)
    model = StepCost()
    fixed, a_token, a_row = costs
    for _ in range(300):
        rows = int(rng.integers(1, 32))
        tokens = rows + int(rng.integers(0, 200))
        seconds = unit * (fixed + a_token * tokens + a_row * rows) * rng.uniform(0.95, 1.05)
        if rng.random() < 0.02:
            seconds *= 50  # something else had the cores
        model.observe(tokens, rows, seconds)
    time, more = model.expected(64, 16)
    right = unit * (fixed + a_token * 64 + a_row * 16)
    assert time == pytest.approx(right, rel=0.3)
    # Where tokens cost little beside the rest, what held a step up weighs more than they do.
    assert more == pytest.approx(unit * a_token, rel=0.3, abs=0.005 * right)


def test_a_first_step_that_was_held_up_is_forgotten():
    model = StepCost()
    model.observe(16, 16, 5.0)
    for _ in range(20):
        model.observe(16, 16, 0.01)
    assert model.expected(16, 16)[0] == pytest.approx(0.01, rel=0.05)


def test_steps_of_no_duration_teach_nothing():
    model, other = StepCost(), StepCost()
    for _ in range(50):
        model.observe(100, 3, 0.0)
    assert model.expected(40, 8) == other.expected(40, 8)


# -- where text stood before -----------------------------------------------------------------


def last_place(ids: list[int]) -> int | None:
    """Where what ``ids`` ends with was followed by something last: four tokens, or else two."""
    for size in (4, 2):
        for end in range(len(ids) - 1, size - 1, -1):
            if len(ids) >= size and ids[end - size : end] == ids[-size:]:
                return end
    return None


@settings(max_examples=150, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 3), max_size=40),
    output=st.lists(st.integers(0, 3), max_size=40),
)
def test_the_last_place_that_ends_alike_is_found(prompt, output):
    text = NgramIndex(np.array(prompt, np.int32))
    for count in range(len(output) + 1):
        ids = prompt + output[:count]
        assert text.ids == ids
        expected = last_place(ids)
        assert text.find() == (None if expected is None else (ids, expected))
        if count < len(output):
            text.append(output[count])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), max_size=30), st.data())
def test_a_match_is_as_long_as_the_tokens_before_agree(ids, data):
    end = data.draw(st.integers(0, len(ids)))
    length = match_len(ids, (ids, end))
    assert length <= MATCH_LEN
    assert ids[end - length : end] == ids[len(ids) - length :]
    if length < min(end, MATCH_LEN):
        assert ids[end - length - 1] != ids[len(ids) - length - 1]


def test_others_find_what_a_text_has_written_and_not_its_prompt():
    shared = SharedNgramIndex()
    first = NgramIndex(np.arange(100, dtype=np.int32))
    for token_id in (200, 201, 202, 203, 204):
        shared.append(first)
        first.append(token_id)
    in_prompt, at_its_end, in_output = (
        NgramIndex(np.array(ids, np.int32))
        for ids in ([50, 51, 52, 53], [96, 97, 98, 99], [200, 201, 202, 203])
    )
    assert shared.find(in_prompt) is None
    place = shared.find(at_its_end)
    assert place is not None
    assert place[0][place[1]] == 200
    assert match_len(at_its_end.ids, place) == 4
    place = shared.find(in_output)
    assert place is not None
    assert place[0][place[1]] == 204


def test_texts_that_differ_in_one_place_are_not_all_kept():
    shared = SharedNgramIndex()
    for number in range(1_000):
        text = NgramIndex(np.arange(8, dtype=np.int32))
        for token_id in (*range(100, 200), 1_000 + number, *range(200, 300)):
            shared.append(text)
            text.append(token_id)
    kept = {id(ids): len(ids) for ids, _ in (*shared._new.values(), *shared._old.values())}
    assert sum(kept.values()) < 150_000


def test_what_is_shared_is_bounded():
    shared = SharedNgramIndex()
    text = NgramIndex(np.arange(8, dtype=np.int32))
    for token_id in range(40_000):
        shared.append(text)
        text.append(token_id % 30_000 + 100)
    assert len(shared._new) + len(shared._old) <= 2 * 8192
