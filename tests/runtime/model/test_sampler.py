"""The sampler hands a step's arrays to the kernel and back, whole."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ramet.runtime.api.batch import SamplingRows
from ramet.runtime.model.sampler import Sampler


def rows(num_rows, **changes):
    return dataclasses.replace(SamplingRows.greedy(num_rows), **changes)


def test_each_field_reaches_its_own_row():
    logits = np.tile(np.arange(5, dtype=np.float32), (4, 1))
    result = Sampler().sample(
        logits,
        rows(
            4,
            mask_rows=np.array([-1, 0, -1, -1], np.int32),
            masks=np.array([[0b00111]], np.int32),
            targets=np.array([-1, -1, 1, -1], np.int32),
            num_logprobs=np.array([-1, -1, 2, -1], np.int32),
            bias_starts=np.array([0, 0, 0, 0, 1], np.int32),
            bias_token_ids=np.array([3], np.int32),
            bias_values=np.array([9], np.float32),
        ),
    )
    assert result.token_ids.tolist() == [4, 2, 1, 3]
    assert result.top_token_ids[2].tolist() == [4, 3]
    expected = 1 - np.log(np.exp(np.arange(5)).sum())
    assert result.logprobs[2] == pytest.approx(expected, abs=1e-5)


def test_logits_may_be_columns_of_a_wider_array():
    wide = np.zeros((3, 48), np.float32)
    wide[:, 37], wide[:, 41:] = 1, 9
    assert Sampler().sample(wide[:, :41], rows(3)).token_ids.tolist() == [37] * 3


def test_rows_must_match_the_logits():
    with pytest.raises(ValueError, match="2 rows of logits and 3"):
        Sampler().sample(np.zeros((2, 5), np.float32), rows(3))


def test_helping_threads_change_no_result():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(40, 3000)).astype(np.float32)
    drawn = rows(
        40,
        temperature=np.ones(40, np.float32),
        top_p=np.full(40, 0.9, np.float32),
        seeds=np.arange(40, dtype=np.uint64),
        num_logprobs=rng.integers(-1, 4, 40).astype(np.int32),
    )
    alone, helped = Sampler(num_threads=1), Sampler(num_threads=3)
    expected = alone.sample(logits, drawn)
    for _ in range(5):
        result = helped.sample(logits, drawn)
        for name in ("token_ids", "logprobs", "top_token_ids", "top_logprobs"):
            np.testing.assert_array_equal(getattr(result, name), getattr(expected, name))
    assert len(set(expected.token_ids.tolist())) > 20
    helped.close()
    helped.close()
