"""The softmax of attention equals float64 arithmetic, and adds up what it keeps."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from ramet.kernels.attention import cpu_runs as attention_runs
from ramet.kernels.attention import cpu_softmax as attention_softmax
from ramet.kernels.attention.cpu_tiles import CHUNK, MASKED
from ramet.kernels.cpu_support.features import AttentionPath, best_attention_path

PATHS: list[AttentionPath] = sorted({"float32", best_attention_path()})
TOLERANCES: dict[AttentionPath, float] = {"float32": 0.0, "bf16": 2**-8 + 2.5e-4}
LANES = attention_softmax.LANES


@cache
def compiled(path):
    _, run_weights, _ = attention_runs.run_arithmetic(path)

    @njit
    def call(scores, maxima, decays, sums, num_rows, num_vectors):
        run_weights(scores, maxima, decays, sums, num_rows, num_vectors)

    return call


def softmax(path, scores, maxima, sums):
    """Weights of ``scores`` [rows, up to CHUNK], new ``maxima`` [rows], decays, new sums."""
    num_rows, count = scores.shape
    num_vectors = -(-count // LANES)
    work = np.full((num_rows, CHUNK), np.nan, np.float32)
    work[:, : -(-num_vectors // 2) * 2 * LANES] = MASKED
    work[:, :count] = scores
    maxima, sums = maxima.copy(), sums.copy()
    decays = np.full(num_rows + LANES, np.nan, np.float32)
    compiled(path)(
        work.ctypes.data, maxima.ctypes.data, decays.ctypes.data, sums.ctypes.data, num_rows,
        num_vectors,
    )  # fmt: skip
    if path == "bf16":
        halves = work.view(np.uint16)[:, :count].astype(np.uint32) << 16
        return halves.view(np.float32), maxima, decays[:num_rows], sums
    return work[:, :count], maxima, decays[:num_rows], sums


def exponential(x, largest):
    """In float64; never 0, so that one can divide by it."""
    return np.exp(np.maximum(x.astype(np.float64) - largest, -700))


def rounding(x, largest):
    """The relative error of ``exponential`` in float32; anything goes for a result near 0."""
    x = x.astype(np.float64) - largest
    return np.where(x < -86.5, np.inf, 3e-7 + 2e-7 * np.abs(x))


@pytest.mark.parametrize("path", PATHS)
@given(st.integers(1, 14), st.integers(1, CHUNK), st.floats(0.01, 60), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_weights_and_sums(path, num_rows, count, spread, seed):
    rng = np.random.default_rng(seed)
    scores = (rng.normal(size=(num_rows, count)) * spread).astype(np.float32)
    scores[rng.random(scores.shape) < 0.1] = MASKED
    before = np.where(rng.random(num_rows) < 0.3, MASKED, rng.normal(size=num_rows) * spread)
    before = before.astype(np.float32)
    sums = rng.random((num_rows, LANES)).astype(np.float32)
    weights, maxima, decays, after = softmax(path, scores, before, sums)
    assert all(np.isfinite(each).all() for each in (weights, decays, after))
    np.testing.assert_array_equal(maxima, np.maximum(before, scores.max(1)))
    error = np.abs(weights / exponential(scores, maxima[:, None]) - 1)
    assert (error <= TOLERANCES[path] + rounding(scores, maxima[:, None])).all()
    assert (weights[scores == maxima[:, None]] == 1).all()
    assert (weights[(scores == MASKED) & (maxima[:, None] > MASKED)] == 0).all()
    error = np.abs(decays / exponential(before, maxima) - 1)
    assert (error <= rounding(before, maxima)).all()
    assert (decays[maxima == before] == 1).all()
    total = sums.sum(1, dtype=np.float64) * decays + weights.sum(1, dtype=np.float64)
    seen = maxima > MASKED  # what is summed before a row sees anything decays to 0
    np.testing.assert_allclose(after.sum(1, dtype=np.float64)[seen], total[seen], rtol=3e-6)


@pytest.mark.parametrize("path", PATHS)
def test_a_row_is_the_same_in_any_number_of_rows(path):
    rng = np.random.default_rng(0)
    scores = (rng.normal(size=(13, 100)) * 5).astype(np.float32)
    maxima = np.full(13, MASKED, np.float32)
    sums = np.zeros((13, LANES), np.float32)
    together = softmax(path, scores, maxima, sums)
    for r in range(13):
        alone = softmax(path, scores[r : r + 1], maxima[r : r + 1], sums[r : r + 1])
        for one, all_rows in zip(alone, together, strict=True):
            np.testing.assert_array_equal(one[0], all_rows[r])
