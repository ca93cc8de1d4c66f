"""Where all rows are greedy, the runner's threads find their tokens: the sampler's own."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ramet.runtime.api.batch import SamplingRows
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.sampler import Sampler


def greedy_rows(num_rows: int, **changes: object) -> SamplingRows:
    rows = dataclasses.replace(
        SamplingRows.greedy(num_rows),
        positions=np.full(num_rows, 9, np.int64),
        masks=np.array([[-1] * 8, [6] * 8, [0] * 8], np.int32),
    )
    return dataclasses.replace(rows, **changes)


def in_one_row(value, dtype, *, others):
    array = np.full(6, others, dtype)
    array[3] = value
    return array


NOT_GREEDY = {
    "drawn": {"temperature": in_one_row(0.7, np.float32, others=0)},
    "log-probabilities": {"num_logprobs": in_one_row(0, np.int32, others=-1)},
    "scored": {"targets": in_one_row(5, np.int32, others=-1)},
    "biased": {
        "bias_starts": np.array([0, 0, 0, 0, 1, 1, 1], np.int32),
        "bias_token_ids": np.array([77], np.int32),
        "bias_values": np.array([1000], np.float32),
    },
    "penalised": {
        "repetition_penalty": np.full(6, 1e6, np.float32),
        "seen_starts": np.array([0, 0, 0, 0, 250, 250, 250], np.int32),
        "seen_token_ids": np.arange(250, dtype=np.int32),
        "seen_output_counts": np.ones(250, np.int32),
    },
}


MASKED = {
    "a row whose mask allows its likeliest token": {
        "mask_rows": in_one_row(0, np.int32, others=-1),
    },
    "a row with other tokens": {"mask_rows": in_one_row(1, np.int32, others=-1)},
    "rows with masks alone": {"mask_rows": np.array([0, 1, 2, 2, 1, 0], np.int32)},
}


@pytest.fixture(scope="module")
def runner(model_factory):
    runner = CpuRunner(model_factory(), num_pages=20, num_threads=2)
    yield runner
    runner.close()


@pytest.fixture
def batch(batch_of):
    rng = np.random.default_rng(1)
    return batch_of([(rng.integers(0, 250, 7), 0, [page]) for page in range(6)])


@pytest.mark.parametrize("kind", ["greedy", *MASKED, *NOT_GREEDY])
def test_tokens_are_those_of_a_run_and_the_sampler(kind, runner, batch):
    batch.sampling = greedy_rows(6, **(MASKED | NOT_GREEDY).get(kind, {}))
    assert batch.sampling.all_greedy == (kind not in NOT_GREEDY)
    called = []
    result = runner.run(batch, lambda: called.append(True)).sampled
    assert called == [True]
    apart = Sampler().sample(runner.logits(batch), batch.sampling)
    for field in ("token_ids", "logprobs", "top_token_ids", "top_logprobs"):
        np.testing.assert_array_equal(getattr(result, field), getattr(apart, field), field)


def test_what_a_mask_leaves_out_is_not_taken(runner, batch):
    batch.sampling = greedy_rows(6)
    likeliest = runner.run(batch).sampled.token_ids
    allowed = np.ones((6, 256), np.bool_)
    allowed[np.arange(6), likeliest] = False
    allowed[5] = False
    masks = np.packbits(allowed, axis=1, bitorder="little").view(np.int32)
    batch.sampling = greedy_rows(6, masks=masks, mask_rows=np.arange(6, dtype=np.int32))
    logits = np.where(allowed[:, : runner.vocab_size], runner.logits(batch), -np.inf)
    token_ids = runner.run(batch).sampled.token_ids
    assert token_ids.tolist() == [*logits[:5].argmax(1), -1]


def test_a_result_outlives_the_next_step(runner, batch, batch_of):
    batch.sampling = greedy_rows(6)
    first = runner.run(batch).sampled
    kept = first.token_ids.copy()
    other = batch_of([([token], 0, [page]) for page, token in enumerate((3, 99, 7))])
    other.sampling = greedy_rows(3)
    assert runner.run(other).sampled.token_ids.tolist() != kept[:3].tolist()
    assert first.token_ids.tolist() == kept.tolist()


def test_a_step_that_wants_no_logits_draws_nothing(runner, batch):
    batch.logit_tokens = np.empty(0, np.int32)
    batch.sampling = greedy_rows(0)
    assert len(runner.run(batch).sampled.token_ids) == 0
