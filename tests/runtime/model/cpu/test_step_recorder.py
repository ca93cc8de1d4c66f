"""A step's records point to what compiled code reads of the batch, whatever there was before."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.cpu_support import step as words
from ramet.runtime.model.cpu.step import StepRecorder

PAGE_SIZE, NUM_PAGES = 16, 64


def new_recorder() -> StepRecorder:
    return StepRecorder(
        limits=(250, 1024, PAGE_SIZE, NUM_PAGES),
        tiles=(True, 32, 2, 2),
        scratch_bytes=256,
        max_fetched=40,
    )


@pytest.fixture(scope="module")
def recorder():
    return new_recorder()


def ints(address: int, count: int) -> list[int]:
    return list((ctypes.c_int32 * int(count)).from_address(int(address)))


@st.composite
def rows(draw):
    """(tokens, how many were there before, pages) of a row, the last of them its own."""
    num_before, num_new = draw(st.integers(0, 70)), draw(st.integers(1, 90))
    num_pages = -(-(num_before + num_new) // PAGE_SIZE)
    first = draw(st.integers(0, NUM_PAGES - num_pages))
    return [draw(st.integers(0, 249))] * num_new, num_before, list(range(first, first + num_pages))


@settings(max_examples=60, deadline=None)
@given(some=st.lists(rows(), min_size=1, max_size=5), data=st.data())
def test_records_say_what_the_batch_does(recorder, batch_of, some, data):
    batch = batch_of(some)
    indices = st.lists(st.integers(0, batch.num_tokens - 1), unique=True, max_size=9)
    batch.logit_tokens = np.array(sorted(data.draw(indices)), np.int32)
    batch.hidden_tokens = np.array(sorted(data.draw(indices)), np.int32)
    num_greedy = data.draw(st.integers(0, len(batch.logit_tokens)))
    step = recorder.record(batch, num_greedy)

    read = [*batch.logit_tokens, *batch.hidden_tokens]
    owners = [row for row, (tokens, _, _) in enumerate(some) for _ in tokens]
    slots = [
        pages[position // PAGE_SIZE] * PAGE_SIZE + position % PAGE_SIZE
        for tokens, before, pages in some
        for position in range(before, before + len(tokens))
    ]
    everything, wanted = step[words.ALL], step[words.READ]
    assert everything[words.NUM_TOKENS] == batch.num_tokens
    assert ints(everything[words.TOKEN_IDS], batch.num_tokens) == batch.token_ids.tolist()
    assert ints(everything[words.TOKEN_ROWS], batch.num_tokens) == owners
    assert ints(everything[words.SLOTS], batch.num_tokens) == slots
    assert recorder.highest_page == max(slots) // PAGE_SIZE
    assert wanted[words.NUM_TOKENS] == len(read)
    assert ints(wanted[words.READ_TOKENS], len(read)) == read
    assert ints(wanted[words.TOKEN_ROWS], len(read)) == [owners[token] for token in read]
    assert ints(wanted[words.POSITIONS], len(read)) == batch.positions[read].tolist()
    assert wanted[words.NUM_GREEDY] == num_greedy
    assert everything[words.NUM_GREEDY] == 0
    for record, count in ((everything, batch.num_tokens), (wanted, len(read))):
        bounds = ints(record[words.TILES], 2 * record[words.NUM_TILES])
        assert [t for a, b in zip(bounds[::2], bounds[1::2], strict=True) for t in range(a, b)] == (
            list(range(count))
        )
    fetched = ints(everything[words.FETCH_PAGES], everything[words.NUM_FETCH_PAGES])
    assert len(fetched) <= 40
    assert set(fetched) <= {page for _, _, pages in some for page in pages}

    alone = new_recorder().record(batch, num_greedy)
    pointers = [words.TOKEN_ROWS, words.SLOTS, words.TILES, words.READ_TOKENS, words.FETCH_PAGES]
    pointers += [words.POSITIONS, words.SCRATCH]
    same = np.delete(np.arange(words.SIZE), pointers)
    np.testing.assert_array_equal(step[:, same], alone[:, same])


def test_what_is_wrong_with_a_batch_changes_nothing(recorder, batch_of):
    good = batch_of([([1, 2, 3], 0, [0])])
    before = recorder.record(good, 1).copy()
    bad = batch_of([([1, 2, 250, 4], 0, [0])])
    with pytest.raises(ValueError, match="token ids"):
        recorder.record(bad, 2)
    np.testing.assert_array_equal(recorder.record(good, 1), before)


def test_arrays_of_another_kind_are_read_as_what_they_say(recorder, batch_of):
    batch = batch_of([([5, 6, 7], 0, [3])])
    plain = recorder.record(batch, 0)[words.ALL, words.NUM_TILES]
    batch.token_ids = np.array([5, 0, 6, 0, 7], np.int64)[::2]
    step = recorder.record(batch, 0)
    assert ints(step[words.ALL, words.TOKEN_IDS], 3) == [5, 6, 7]
    assert step[words.ALL, words.NUM_TILES] == plain
