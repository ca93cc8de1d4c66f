"""In each chunk of keys, rows that name the same pages are one run: at every level of the tree."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.kernels.attention import cpu as attention
from ramet.kernels.attention.cpu_tiles import CHUNK
from ramet.kernels.cpu_support import step as words


def runs_of(tree, base):
    """The runs (first token, last token + 1) of the chunk from ``base`` on, as the kernel cuts a
    tile of all tokens; tokens whose context ends before it are in none."""
    token_rows = np.repeat(np.arange(len(tree.context_lens)), np.diff(tree.row_starts))
    arrays = [tree.positions, token_rows.astype(np.int32), tree.page_tables]
    step = np.zeros(words.SIZE, np.int64)
    for word, array in zip(
        (words.POSITIONS, words.TOKEN_ROWS, words.PAGE_TABLES), arrays, strict=True
    ):
        step[word] = array.ctypes.data
    step[words.PAGE_TABLE_STRIDE] = tree.page_tables.shape[1]
    found, run = [], 0
    while run < tree.num_tokens:
        if tree.positions[run] < base:
            run += 1
            continue
        stop, visible = attention._run_end(
            step.ctypes.data, run, tree.num_tokens, base, tree.page_size
        )
        assert visible == min(CHUNK, tree.positions[run:stop].max() + 1 - base)
        found.append((run, stop))
        run = stop
    return found


def pages_of(tree, token, base, count):
    """The pages with the ``count`` positions from ``base`` on of a token's context."""
    row = np.searchsorted(tree.row_starts, token, side="right") - 1
    first, last = base // tree.page_size, (base + count - 1) // tree.page_size
    return tree.page_tables[row, first : last + 1].tolist()


def test_each_level_of_a_tree_is_read_once(row_tree):
    pages = CHUNK // 16
    # Sixteen rows below one root of three chunks; eights share one more, and fours another.
    rows = [(0, 0, 5 * CHUNK + 1, 1), *[(0, 5 * pages, 1, 1)] * 3]
    rows += [(0, 4 * pages, CHUNK + 1, 1), *[(4, 5 * pages, 1, 1)] * 3]
    rows += [(0, 3 * pages, 2 * CHUNK + 1, 1), *[(8, 5 * pages, 1, 1)] * 3]
    rows += [(8, 4 * pages, CHUNK + 1, 1), *[(12, 5 * pages, 1, 1)] * 3]
    tree = row_tree(16, rows)
    sizes = [[stop - run for run, stop in runs_of(tree, chunk * CHUNK)] for chunk in range(6)]
    assert sizes == [[16]] * 3 + [[8] * 2, [4] * 4, [1] * 16]


@pytest.mark.parametrize("page_size", [16, 48, 128])
@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 30), st.integers(0, 200), st.integers(1, 4)),
        min_size=1,
        max_size=10,
    )
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_runs_share_pages_and_are_as_long_as_they_can_be(row_tree, page_size, rows):
    tree = row_tree(page_size, rows)
    for base in range(0, int(tree.context_lens.max()), CHUNK):
        found = runs_of(tree, base)
        seeing = [token for token in range(tree.num_tokens) if tree.positions[token] >= base]
        assert [token for run in found for token in range(*run) if token in seeing] == seeing
        for run, stop in found:
            for token in range(run, stop):
                count = min(CHUNK, tree.positions[token] + 1 - base)
                assert pages_of(tree, token, base, count) == pages_of(tree, run, base, count)
        for (_, stop), (run, _) in pairwise(found):
            count = CHUNK
            for token in (stop - 1, run):
                count = min(count, tree.positions[token] + 1 - base)
            if count == CHUNK and stop == run:
                assert pages_of(tree, stop - 1, base, CHUNK) != pages_of(tree, run, base, CHUNK)
