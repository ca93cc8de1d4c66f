"""Sampling rows where all that run take their likeliest tokens, and where some don't."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from ramet.runtime.api.batch import SamplingRows
from ramet.runtime.api.events import Event
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.parsers import OutputStream
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.scheduler.sequence.token_bans import TokenBans, TokenTexts

TEXTS = TokenTexts([b"a"] * 32, 32)
NOT_GREEDY = {
    "drawn": {"temperature": 0.5},
    "log-probabilities": {"logprobs": 0},
    "scored": {"prompt_logprobs": 0},
    "biased": {"logit_bias": {3: 1.0}},
    "penalised": {"repetition_penalty": 1.5},
}


def sequence(**changes: object) -> Sequence:
    params = SamplingParams(**({"temperature": 0.0} | changes))

    def nobody(event: Event) -> None:
        del event

    return Sequence(
        Request(prompt_token_ids=(1, 2), params=params),
        max_len=9,
        seed=5,
        text=OutputStream(params),
        emit=nobody,
        bans=TokenBans(params, (), TEXTS),
        submit_time=0.0,
    )


def gather(slots: Slots, ids: list[int]) -> SamplingRows:
    masks = np.full((1, 1), -1, np.int32)
    count = len(ids)
    positions, mask_ids = list(range(7, 7 + count)), [0, *[-1] * (count - 1)]
    return slots.gather(ids, positions, [-1] * count, mask_ids, masks, any_scored=False)


@pytest.fixture
def slots():
    slots = Slots(8, 4)
    for _ in range(3):
        slots.assign(sequence())
    return slots


@pytest.mark.parametrize("count", [1, 3, 64, 65, 200])
def test_greedy_rows_say_no_more_than_that(slots, count):
    rows = gather(slots, [index % 3 for index in range(count)])
    assert rows.all_greedy
    assert rows.num_rows == count
    assert rows.mask_rows.tolist() == [0, *[-1] * (count - 1)]
    for field in dataclasses.fields(SamplingRows):
        value = getattr(rows, field.name)
        expected = getattr(SamplingRows.greedy(count), field.name)
        assert value.dtype == expected.dtype
        if field.name not in ("mask_rows", "masks"):
            np.testing.assert_array_equal(value, expected, field.name)


@pytest.mark.parametrize("kind", NOT_GREEDY)
def test_one_that_is_not_greedy_has_its_parameters_until_it_leaves(slots, kind):
    other = sequence(**NOT_GREEDY[kind])
    slots.assign(other)
    rows = gather(slots, [0, other.slot])
    assert rows.seeds.tolist() == [5, 5]
    assert rows.positions.tolist() == [7, 8]
    assert rows.temperature.tolist() == [0, other.params.temperature]
    assert rows.repetition_penalty.tolist() == [1, other.params.repetition_penalty]
    assert rows.all_greedy == (kind == "scored")
    assert len(rows.bias_token_ids) == (kind == "biased")
    slots.release(other)
    assert gather(slots, [0, 1]).seeds.tolist() == [0, 0]
