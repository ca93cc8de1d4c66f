"""Token choice: the reference against first principles, the CPU kernel against the reference."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.sampling.cpu import sample
from ramet.kernels.sampling.reference import (
    _kept_weights,
    philox_words,
    sample_reference,
    uniforms,
)
from ramet.kernels.sampling.rows import SamplingRows

VOCAB_SIZES = [1, 31, 64, 1000, 4099]


def make_rows(num_rows, **changes):
    """Sampling arrays of rows that ask for nothing, with whole arrays replaced by ``changes``."""
    rows = dataclasses.replace(
        SamplingRows.greedy(num_rows),
        seeds=np.arange(num_rows, dtype=np.uint64),
        masks=np.zeros((0, 1), np.int32),
    )
    rows = dataclasses.replace(rows, **changes)
    return {field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)}


def random_rows(rng, num_rows, vocab_size):
    """Every feature is on in some rows and off in others."""

    def pick(*values, dtype=np.float32):
        return rng.choice(values, num_rows).astype(dtype)

    def sparse():
        counts = rng.integers(0, min(4, vocab_size + 1), num_rows)
        tokens = [rng.choice(vocab_size, count, replace=False) for count in counts]
        return np.cumsum([0, *counts]).astype(np.int32), np.concatenate(tokens).astype(np.int32)

    masks = rng.integers(-(2**31), 2**31, (4, -(-vocab_size // 32))).astype(np.int32)
    masks[2], masks[3] = 0, -1
    bias_starts, bias_tokens = sparse()
    seen_starts, seen_tokens = sparse()
    return make_rows(
        num_rows,
        temperature=pick(0, 0.5, 1, 2),
        top_p=pick(1, 0.9, 0.2),
        top_k=pick(0, 1, 5, 50, dtype=np.int32),
        min_p=pick(0, 0.05, 1e-4),
        presence_penalty=pick(0, 1.5),
        frequency_penalty=pick(0, 0.5),
        repetition_penalty=pick(1, 1.3),
        seeds=rng.integers(0, 2**64, num_rows, dtype=np.uint64),
        positions=rng.integers(0, 2**40, num_rows),
        mask_rows=pick(-1, 0, 1, 2, 3, dtype=np.int32),
        masks=masks,
        num_logprobs=pick(-1, 0, 2, 9, dtype=np.int32),
        targets=np.where(rng.random(num_rows) < 0.2, rng.integers(vocab_size), -1).astype(np.int32),
        bias_starts=bias_starts,
        bias_token_ids=bias_tokens,
        bias_values=rng.normal(size=len(bias_tokens)).astype(np.float32) * 5,
        seen_starts=seen_starts,
        seen_token_ids=seen_tokens,
        seen_output_counts=rng.integers(0, 3, len(seen_tokens)).astype(np.int32),
    )


def assert_same_choice(result, expected):
    np.testing.assert_array_equal(result.token_ids, expected.token_ids)
    np.testing.assert_allclose(result.logprobs, expected.logprobs, rtol=1e-4, atol=2e-5)
    np.testing.assert_allclose(result.top_logprobs, expected.top_logprobs, rtol=1e-4, atol=2e-5)
    # Logits that penalties made equal in one precision may swap; the values above must agree.
    swapped = result.top_token_ids != expected.top_token_ids
    np.testing.assert_allclose(
        result.top_logprobs[swapped], expected.top_logprobs[swapped], rtol=0, atol=2e-5
    )


def test_philox_gives_the_published_words():
    words = philox_words(np.array([0, 2**64 - 1], np.uint64), np.array([0, -1]))
    assert [hex(word) for word in words[0]] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]
    assert len(set(words.ravel().tolist())) == 8


def test_uniforms_are_inside_the_unit_interval_and_spread():
    draws = uniforms(np.zeros(4000, np.uint64) + 7, np.arange(4000))
    assert draws.min() > 0
    assert draws.max() < 1
    counts, _ = np.histogram(draws, 20, (0, 1))
    assert ((counts - 200) ** 2 / 200).sum() < 45  # 19 degrees of freedom: p = 0.0007


@given(st.integers(1, 6), st.sampled_from(VOCAB_SIZES), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=120, deadline=None)
def test_every_mix_of_features_equals_the_reference(num_rows, vocab_size, coarse, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(num_rows, vocab_size)).astype(np.float32) * 3
    if coarse:  # many equal logits
        logits = np.round(logits)
    if seed % 5 == 0:
        logits[rng.random(logits.shape) < 0.1] = np.nan
        logits[rng.random(logits.shape) < 0.1] = -np.inf
    before = logits.copy()
    rows = random_rows(rng, num_rows, vocab_size)
    result = sample(logits, SamplingRows(**rows))
    assert_same_choice(result, sample_reference(logits, SamplingRows(**rows)))
    np.testing.assert_array_equal(logits, before)


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_row_does_not_depend_on_its_batch(seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(5, 300)).astype(np.float32) * 3
    rows = random_rows(rng, 5, 300)
    together = sample(logits, SamplingRows(**rows))
    for row in range(5):
        alone = {name: array[row : row + 1] for name, array in rows.items() if len(array) == 5}
        for part, arrays in (("bias", ("token_ids", "values")),
                             ("seen", ("token_ids", "output_counts"))):  # fmt: skip
            first, end = rows[f"{part}_starts"][row : row + 2]
            alone[f"{part}_starts"] = np.array([0, end - first], np.int32)
            for name in arrays:
                alone[f"{part}_{name}"] = rows[f"{part}_{name}"][first:end]
        alone["masks"] = rows["masks"]
        result = sample(logits[row : row + 1], SamplingRows(**alone))
        num_top = result.top_token_ids.shape[1]
        assert result.token_ids[0] == together.token_ids[row]
        np.testing.assert_array_equal(result.logprobs[0], together.logprobs[row])
        np.testing.assert_array_equal(result.top_logprobs[0], together.top_logprobs[row, :num_top])


@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"top_k": 7},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"top_k": 12, "top_p": 0.9, "min_p": 0.02},
        {"temperature": 0.6, "top_p": 0.95},
    ],
)
def test_draws_follow_the_filtered_distribution(filters):
    num_rows, vocab_size = 6000, 40
    logits = np.random.default_rng(1).normal(size=vocab_size).astype(np.float32) * 1.5
    temperature = filters.get("temperature", 1.0)
    rows = make_rows(num_rows, temperature=np.full(num_rows, temperature, np.float32))
    for name in filters.keys() - {"temperature"}:
        rows[name][:] = filters[name]
    rows["positions"][:] = np.arange(num_rows)
    rows["seeds"][:] = 3
    result = sample(
        np.ascontiguousarray(np.broadcast_to(logits, (num_rows, vocab_size))), SamplingRows(**rows)
    )
    weights = _kept_weights(
        logits.astype(np.float64) / temperature,
        filters.get("top_k", 0),
        filters.get("top_p", 1.0),
        filters.get("min_p", 0.0),
    )
    expected = weights / weights.sum() * num_rows
    counts = np.bincount(result.token_ids, minlength=vocab_size)
    assert (counts[expected == 0] == 0).all()
    kept = expected > 0
    chi_square = ((counts - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = kept.sum() - 1
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom) + 8


def test_filters_keep_what_their_definitions_say():
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))

    def kept(**filters):
        rows = make_rows(500, temperature=np.ones(500, np.float32), positions=np.arange(500))
        for name, value in filters.items():
            rows[name][:] = value
        result = sample(np.repeat(logits, 500, axis=0), SamplingRows(**rows))
        return set(result.token_ids.tolist())

    assert kept() == {0, 1, 2, 3}
    assert kept(top_k=2) == {0, 1}
    assert kept(top_p=0.65) == {0, 1}
    assert kept(top_p=0.75) == {0, 1, 2}
    assert kept(min_p=0.6) == {0, 1}
    # top-p is taken of what top-k left: 0.4 / 0.9 and 0.3 / 0.9 reach 0.7
    assert kept(top_k=3, top_p=0.7) == {0, 1}


def test_a_large_flat_distribution_is_filtered_exactly():
    rng = np.random.default_rng(5)
    logits = rng.normal(size=(3, 50_000)).astype(np.float32) * 0.1
    rows = make_rows(
        3,
        temperature=np.ones(3, np.float32),
        top_p=np.array([0.95, 1, 0.5], np.float32),
        top_k=np.array([0, 20_000, 30_000], np.int32),
        num_logprobs=np.array([20, 0, 3], np.int32),
    )
    assert_same_choice(
        sample(logits, SamplingRows(**rows)), sample_reference(logits, SamplingRows(**rows))
    )


def test_a_very_low_temperature_is_greedy_and_not_a_number_is_never_chosen():
    logits = np.array([[1.0, np.nan, 3.0, 2.0]], np.float32)
    rows = make_rows(1, temperature=np.full(1, 1e-38, np.float32))
    assert sample(logits, SamplingRows(**rows)).token_ids.tolist() == [2]
    assert sample(logits, SamplingRows(**make_rows(1))).token_ids.tolist() == [2]


def test_a_mask_that_allows_nothing_gives_no_token():
    logits = np.zeros((2, 40), np.float32)
    rows = make_rows(
        2,
        mask_rows=np.zeros(2, np.int32),
        masks=np.zeros((1, 2), np.int32),
        num_logprobs=np.array([-1, 1], np.int32),
    )
    result = sample(logits, SamplingRows(**rows))
    assert result.token_ids.tolist() == [-1, -1]
    assert np.isnan(result.logprobs[0])
    assert result.logprobs[1] == -np.inf
    assert result.top_token_ids.tolist() == [[-1], [-1]]
