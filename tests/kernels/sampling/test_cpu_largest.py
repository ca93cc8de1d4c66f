"""A greedy row's token: the first of the largest, whatever else the row holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.cpu.program import Program, Stage, Team
from ramet.kernels.cpu_support import step as words
from ramet.kernels.sampling import cpu_largest as largest


@pytest.fixture(scope="module")
def team():
    team = Team(2)
    yield team
    team.close()


def largest_of(team, rows, width):
    """What the operation writes for the first ``width`` values of each row."""
    out = np.full(len(rows), -7, np.int32)
    operands = {
        largest.X: rows.ctypes.data,
        largest.X_STRIDE: rows.strides[0],
        largest.WIDTH: width,
        largest.OUT: out.ctypes.data,
    }
    step = np.zeros((words.NUM_RECORDS, words.SIZE), np.int64)
    step[words.READ, words.NUM_GREEDY] = len(rows) - 1
    stage = Stage(largest.largest_of_rows, operands, record=words.READ)
    team.run(Program([stage]), step)
    assert out[-1] == -7, "a row that is not greedy was written"
    return out[:-1]


def expected(row):
    """The first index of the largest; -1 if there is none."""
    known = np.where(np.isnan(row), -np.inf, row)
    return int(known.argmax()) if known.max() > -np.inf else -1


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_first_of_the_largest_is_found(team, data):
    width = data.draw(st.sampled_from([1, 63, 64, 65, 2048, 2049, 4224, 5000]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    kinds = [np.nan, -np.inf, -3.0, 0.0, 5.0, 5.0]  # few values, so that there are ties
    some = data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    rows = rng.choice(some, (5, width + 11)).astype(np.float32)
    rows[:, width:] = 99  # what is behind a row is no part of it
    rows[1] = np.where(np.arange(width + 11) < width, -np.inf, 99)
    found = largest_of(team, rows, width)
    assert found.tolist() == [expected(row[:width]) for row in rows[:-1]]
