"""What linear layers fetch for attention is its pages, all of them where there are tiles enough."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.attention.cpu import list_pages
from ramet.kernels.cpu.program import STAGE_WORDS
from ramet.kernels.cpu_support import fetch as fetch
from ramet.kernels.cpu_support import step as words
from ramet.kernels.linear.cpu import TILE_ROWS

STRIDE = 1 << 20


def fetched_lines(pages, page_bytes, num_rows, layers):
    """Lines that each tile of each layer of (blocks, groups) fetches, by page."""
    total = sum(blocks * groups for blocks, groups in layers)
    step = np.zeros(words.SIZE, np.int64)
    step[words.FETCH_PAGES], step[words.NUM_FETCH_PAGES] = pages.ctypes.data, len(pages)
    done, found = 0, []
    for blocks, groups in layers:
        stage = np.zeros(STAGE_WORDS, np.int64)
        stage[fetch.FETCH], stage[fetch.FETCH_BYTES], stage[fetch.FETCH_STRIDE] = (
            64 * STRIDE,
            page_bytes,
            STRIDE,
        )
        stage[fetch.FETCH_FIRST] = (done << 16) // total
        done += blocks * groups
        stage[fetch.FETCH_END] = (done << 16) // total
        stage_at, step_at = stage.ctypes.data, step.ctypes.data
        plan = fetch.fetch_plan(stage_at, step_at, num_rows, groups)
        lines = fetch.LINES * (2 if num_rows >= TILE_ROWS else 1)
        for tile in range(blocks * -(-num_rows // TILE_ROWS)):
            at, last = fetch.fetch_piece(stage_at, step_at, plan, tile)
            if at:
                groups_at = np.minimum(at + 64 * lines * np.arange(groups), last)
                found.append(groups_at[:, None] + 64 * np.arange(lines))
    return np.unique(np.concatenate([each.ravel() for each in found] or [np.zeros(0, int)]))


LAYERS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 50)), min_size=1, max_size=4)


@given(LAYERS, st.integers(1, 70), st.integers(0, 40), st.integers(6, 200))
@settings(max_examples=100, deadline=None)
def test_tiles_fetch_lines_of_the_pages_alone(layers, num_rows, num_pages, page_lines):
    pages = np.random.default_rng(0).permutation(100)[:num_pages].astype(np.int32)
    lines = fetched_lines(pages, 64 * page_lines, num_rows, layers)
    page, place = np.divmod(lines - 64 * STRIDE, STRIDE)
    assert set(page) <= set(pages)
    assert (place < 64 * page_lines).all()
    if num_rows < 8:
        assert len(lines) == 0


def test_tiles_fetch_every_line_where_there_are_enough_of_them():
    pages = np.arange(3, 23, dtype=np.int32)
    for num_rows in (8, 16, 50):
        lines = fetched_lines(pages, 64 * 192, num_rows, [(36, 18), (192, 18), (36, 48), (60, 18)])
        expected = 64 * STRIDE + pages[:, None] * STRIDE + 64 * np.arange(192)
        np.testing.assert_array_equal(lines, np.sort(expected.ravel()))


def test_pages_that_rows_share_are_listed_once():
    tables = np.array([[5, 6, 7, -1], [5, 6, 8, 9], [5, 1, -1, -1], [2, -1, -1, -1]], np.int32)
    lens = np.array([40, 64, 17, 16], np.int32)
    for most, expected in ((20, [5, 6, 7, 8, 9, 1, 2]), (4, [5, 6, 7, 8]), (0, [])):
        pages = np.zeros(most, np.int32)
        count = list_pages(lens, tables, 16, most, pages)
        assert pages[:count].tolist() == expected
