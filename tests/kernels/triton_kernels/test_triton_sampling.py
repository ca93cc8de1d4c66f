"""Masks and token choice against the float64 reference of ``kernels.sampling``."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.sampling.reference import sample_reference, uniforms
from ramet.kernels.sampling.rows import SamplingRows
from ramet.kernels.sampling.triton import _uniform, sample_gpu
from ramet.kernels.triton_support.dispatch import interpreting
from ramet.kernels.triton_support.triton_language import tl, triton

VOCAB_SIZES = [1, 7, 32, 1000, 5000]


def sparse(rng, num_rows, vocab_size):
    """Row starts, and tokens that are distinct within a row."""
    counts = rng.integers(0, min(4, vocab_size + 1), num_rows)
    tokens = [rng.choice(vocab_size, count, replace=False) for count in counts]
    return np.cumsum([0, *counts]).astype(np.int32), np.concatenate(tokens).astype(np.int32)


def random_rows(rng, num_rows, vocab_size):
    """Sampling arrays in which every feature is on in some rows and off in others."""

    def pick(*values, dtype=np.float32):
        return rng.choice(values, num_rows).astype(dtype)

    masks = rng.integers(-(2**31), 2**31, (3, -(-vocab_size // 32))).astype(np.int32)
    masks[2] = 0
    bias_starts, bias_tokens = sparse(rng, num_rows, vocab_size)
    seen_starts, seen_tokens = sparse(rng, num_rows, vocab_size)
    return {
        "temperature": pick(0, 0.5, 1, 2),
        "top_p": pick(1, 0.9, 0.2),
        "top_k": pick(0, 1, 5, 50, dtype=np.int32),
        "min_p": pick(0, 0.05),
        "presence_penalty": pick(0, 1.5),
        "frequency_penalty": pick(0, 0.5),
        "repetition_penalty": pick(1, 1.3),
        "seeds": rng.integers(0, 2**64, num_rows, dtype=np.uint64),
        "positions": rng.integers(0, 2**40, num_rows),
        "mask_rows": pick(-1, 0, 1, 2, dtype=np.int32),
        "masks": masks,
        "num_logprobs": pick(-1, 0, 2, 9, dtype=np.int32),
        "targets": np.where(rng.random(num_rows) < 0.3, rng.integers(vocab_size), -1).astype(
            np.int32
        ),
        "bias_starts": bias_starts,
        "bias_token_ids": bias_tokens,
        "bias_values": rng.normal(size=len(bias_tokens)).astype(np.float32) * 5,
        "seen_starts": seen_starts,
        "seen_token_ids": seen_tokens,
        "seen_output_counts": rng.integers(0, 3, len(seen_tokens)).astype(np.int32),
    }


def on_device(array):
    return torch.from_numpy(array).to("cpu" if interpreting() else "cuda")


def tensors(rows):
    return {
        name: on_device(array.view(np.int64) if array.dtype == np.uint64 else array)
        for name, array in rows.items()
    }


def sample(logits, rows):
    num_top = max(0, int(rows["num_logprobs"].max()))
    result = sample_gpu(on_device(logits.copy()), tensors(rows), num_top=num_top)
    return type(result)(*(tensor.cpu() for tensor in result))


@given(st.integers(1, 5), st.sampled_from(VOCAB_SIZES), st.booleans(), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_choice_equals_the_reference(num_rows, vocab_size, coarse, seed):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(num_rows, vocab_size)).astype(np.float32) * 3
    if coarse:  # many equal logits
        logits = np.round(logits)
    if seed % 5 == 0:
        logits[0, ::2] = np.nan
    rows = random_rows(rng, num_rows, vocab_size)
    expected = sample_reference(logits, SamplingRows(**rows))
    result = sample(logits, rows)
    np.testing.assert_allclose(
        result.logprobs, expected.logprobs, atol=1e-4, rtol=1e-5, equal_nan=True
    )
    np.testing.assert_array_equal(result.token_ids, expected.token_ids)
    np.testing.assert_array_equal(result.top_token_ids, expected.top_token_ids)
    np.testing.assert_allclose(result.top_logprobs, expected.top_logprobs, atol=1e-4, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("temperature", [1e-30, 1e-38, 1e-40, 1e-45])
@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
def test_a_very_low_temperature_is_greedy(temperature, name):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4, 100)).astype(np.float32)
    rows = random_rows(rng, 4, 100)
    rows["temperature"] = np.full(4, temperature, np.float32)
    rows["mask_rows"] = np.array([-1, 0, 1, 0], np.int32)
    rows["targets"] = np.full(4, -1, np.int32)
    for filter_, value in (("top_k", 0), ("top_p", 1), ("min_p", 0)):
        rows[filter_] = np.full(4, value, rows[filter_].dtype)
    rows[name] = np.full(4, {"top_k": 3, "top_p": 0.5, "min_p": 0.1}[name], rows[name].dtype)
    greedy = rows | {"temperature": np.zeros(4, np.float32)}
    np.testing.assert_array_equal(
        sample(logits, rows).token_ids, sample_reference(logits, SamplingRows(**greedy)).token_ids
    )


@triton.jit
def _uniforms(out, seeds, positions):
    row = tl.program_id(0)
    tl.store(out + row, _uniform(tl.load(seeds + row), tl.load(positions + row)))


def test_random_numbers_have_the_bits_of_the_reference():
    rng = np.random.default_rng(0)
    seeds = np.r_[0, 2**64 - 1, rng.integers(0, 2**64, 20, dtype=np.uint64)].astype(np.uint64)
    positions = np.r_[0, 2**63 - 1, rng.integers(0, 2**63, 20)]
    out = torch.empty(len(seeds), dtype=torch.float64)
    _uniforms[(len(seeds),)](out, on_device(seeds.view(np.int64)), on_device(positions))
    np.testing.assert_array_equal(out.cpu().numpy(), uniforms(seeds, positions))


def test_frequencies_follow_the_filtered_distribution():
    """Chi-square over many positions of one row that keeps five of nine tokens."""
    logits = np.log(np.array([[8, 1, 7, 2, 6, 3, 5, 4, 0.5]], np.float32))
    count = 250
    rng = np.random.default_rng(3)
    rows = random_rows(rng, count, 9) | {"mask_rows": np.full(count, -1, np.int32)}
    for name, value in (("temperature", 1), ("top_p", 1), ("min_p", 0.45), ("top_k", 0)):
        rows[name] = np.full(count, value, rows[name].dtype)
    for name in ("bias", "seen"):
        rows[f"{name}_starts"] = np.zeros(count + 1, np.int32)
        rows[f"{name}_token_ids"] = np.zeros(0, np.int32)
    rows["seeds"] = np.full(count, 12345, np.uint64)
    rows["positions"] = np.arange(count)
    rows["num_logprobs"] = rows["targets"] = np.full(count, -1, np.int32)
    tokens = sample(np.repeat(logits, count, 0), rows).token_ids.numpy()
    kept = np.array([8, 0, 7, 0, 6, 0, 5, 4, 0]) / 30
    observed = np.bincount(tokens, minlength=9)
    assert observed[kept == 0].sum() == 0
    expected = kept[kept > 0] * count
    chi_square = ((observed[kept > 0] - expected) ** 2 / expected).sum()
    assert chi_square < 18.5  # the 0.1 % point of 4 degrees of freedom


FILTERS = {
    "none": ({}, {0, 1, 2, 3}),
    "top-k": ({"top_k": 2}, {0, 1}),
    "one": ({"top_k": 1}, {0}),
    "top-p": ({"top_p": 0.65}, {0, 1}),
    "more": ({"top_p": 0.75}, {0, 1, 2}),
    "min-p": ({"min_p": 0.6}, {0, 1}),
    # top-p is taken of what top-k left: 0.4 / 0.9 and 0.3 / 0.9 reach 0.7
    "both": ({"top_k": 3, "top_p": 0.7}, {0, 1}),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters_keep_what_their_definitions_say(name):
    filters, kept = FILTERS[name]
    count = 24
    rng = np.random.default_rng(4)
    rows = random_rows(rng, count, 4) | {"positions": np.arange(count)}
    plain = {"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "mask_rows": -1, "targets": -1}
    for each, value in (plain | {"num_logprobs": -1} | filters).items():
        rows[each] = np.full(count, value, rows[each].dtype)
    rows["seeds"] = np.full(count, 11, np.uint64)
    for each in ("bias", "seen"):
        rows[f"{each}_starts"] = np.zeros(count + 1, np.int32)
        rows[f"{each}_token_ids"] = np.zeros(0, np.int32)
    logits = np.log(np.array([[0.4, 0.3, 0.2, 0.1]], np.float32))
    assert set(sample(np.repeat(logits, count, 0), rows).token_ids.tolist()) == kept
