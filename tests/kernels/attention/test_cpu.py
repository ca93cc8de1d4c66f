"""Attention on the CPU equals dense attention over any tree of shared pages, grouped or not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.kernels.attention import cpu as attention
from ramet.kernels.cpu.program import Program, Stage, Team, float_operand
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.features import AttentionPath, best_attention_path

PATHS: list[AttentionPath] = sorted({"float32", best_attention_path()})
TOLERANCES: dict[AttentionPath, float] = {"float32": 2e-5, "bf16": 2e-3}

HEADS = [
    *((3, 1, 64), (4, 2, 80), (2, 2, 16), (7, 1, 128), (1, 1, 256)),
    *((4, 1, 256), (6, 2, 192), (3, 3, 96), (20, 1, 32), (64, 1, 16)),
]
"""Query heads, key heads, their size: groups of any size, beyond what a tile holds too."""

ROWS = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 20), st.integers(0, 200), st.integers(1, 30)),
    min_size=1,
    max_size=7,
)


def bfloat16_bits(tensor):
    return tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy().view(np.uint16)


def attend(tree, q, k, v, *, window=0, soft_cap=0.0, path="float32", grouping=True, num_threads=1):
    """The kernel over ``k`` and ``v`` [pages, kv heads, page_size, head_dim]; q is scaled."""
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    group_size = num_heads // num_kv_heads
    k, v = (torch.nan_to_num(pages) for pages in (k, v))
    pairs = k.unflatten(-1, (head_dim // 2, 2)).transpose(2, 3)  # [..., pair, token, 2]
    tokens = v.unflatten(2, (v.shape[2] // 2, 2)).transpose(3, 4)  # [..., pair, component, 2]
    keys, values = bfloat16_bits(pairs), bfloat16_bits(tokens)
    queries = q.float().contiguous().numpy()
    out = np.full(queries.shape, np.nan, np.float32)
    positions = tree.positions
    rows, slots = np.zeros((2, num_tokens), np.int32)
    tiles = np.zeros((num_tokens, 2), np.int32)
    num_tiles = attention.plan_tokens(
        tree.row_starts,
        tree.context_lens,
        tree.page_tables,
        tree.page_size,
        attention.max_tile_tokens(group_size),
        grouping,
        num_kv_heads,
        num_threads,
        rows,
        slots,
        positions,
        tiles,
    )
    size = attention.scratch_bytes(group_size, head_dim)
    scratch = np.full((num_threads, size), 255, np.uint8)  # not-a-number everywhere
    step = np.zeros(words.SIZE, np.int64)
    step[words.NUM_TOKENS] = num_tokens
    step[words.PAGE_TABLE_STRIDE] = tree.page_tables.shape[1]
    step[words.NUM_TILES] = num_tiles
    step[words.SCRATCH_BYTES] = size
    for word, array in (
        (words.POSITIONS, positions),
        (words.PAGE_TABLES, tree.page_tables),
        (words.TOKEN_ROWS, rows),
        (words.TILES, tiles),
        (words.SCRATCH, scratch),
    ):
        step[word] = array.ctypes.data
    stage = Stage(
        attention.attend_op(path),
        {
            attention.Q: queries.ctypes.data,
            attention.Q_STRIDE: queries.strides[0],
            attention.OUT: out.ctypes.data,
            attention.OUT_STRIDE: out.strides[0],
            attention.KEYS: keys.ctypes.data,
            attention.VALUES: values.ctypes.data,
            attention.PAGE_SIZE: tree.page_size,
            attention.HEAD_BYTES: keys.strides[1],
            attention.PAGE_BYTES: keys.strides[0],
            attention.NUM_KV_HEADS: num_kv_heads,
            attention.GROUP_SIZE: group_size,
            attention.HEAD_DIM: head_dim,
            attention.WINDOW: window,
            attention.SOFT_CAP: float_operand(soft_cap),
        },
    )
    team = Team(num_threads)
    team.run(Program([stage]), step)
    team.close()
    return out


def rounded(pages):
    return pages.to(torch.bfloat16).double()


@given(
    ROWS,
    st.sampled_from([16, 32, 48, 128]),
    st.sampled_from(HEADS),
    st.sampled_from([0, 1, 20, 130]),
    st.sampled_from([0.0, 5.0]),
    st.sampled_from(PATHS),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_equals_dense_attention(row_tree, dense_attention, rows, page_size, heads, window, cap, path, seed):  # fmt: skip # noqa: E501
    num_heads, num_kv_heads, head_dim = heads
    tree = row_tree(page_size, rows)
    k, v = (rounded(pages) for pages in tree.pages(num_kv_heads, head_dim, seed))
    q = tree.queries(num_heads, head_dim, seed) * head_dim**-0.5
    if path == "bf16":
        q = rounded(q)
    expected = dense_attention(tree, q, k, v, scale=1.0, window=window, soft_cap=cap).numpy()
    result = attend(tree, q, k, v, window=window, soft_cap=cap, path=path)
    # A weight that is rounded to bfloat16 is off in proportion to the values that it weighs.
    error = np.abs(result - expected) / max(1.0, float(v.nan_to_num().abs().max()))
    assert error.max() <= TOLERANCES[path]


@given(
    ROWS,
    st.sampled_from([16, 32]),
    st.sampled_from([0, 150]),
    st.sampled_from([1.0, -1.2e-38]),  # the least bfloat16 whose halves are not 0
    st.sampled_from(PATHS),
    st.integers(0, 2**32),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_grouping_and_threads_change_no_bit(row_tree, rows, page_size, window, scale, path, seed):
    tree = row_tree(page_size, rows)
    k, v = tree.pages(2, 64, seed)
    v = v if scale == 1.0 else torch.full_like(v, scale)
    q = tree.queries(6, 64, seed)
    plain = attend(tree, q, k, v, window=window, path=path, grouping=False)
    for num_threads in (1, 2):
        grouped = attend(tree, q, k, v, window=window, path=path, num_threads=num_threads)
        np.testing.assert_array_equal(grouped.view(np.int32), plain.view(np.int32))


@given(
    ROWS, st.integers(1, 20), st.booleans(), st.sampled_from([1, 3, 8]), st.sampled_from([1, 2, 5])
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_tiles_cover_all_tokens_in_order(row_tree, rows, max_tokens, grouping, heads, threads):
    tree = row_tree(16, rows)
    token_rows, slots = np.zeros((2, tree.num_tokens), np.int32)
    tiles = np.zeros((tree.num_tokens, 2), np.int32)
    num_tiles = attention.plan_tokens(
        tree.row_starts, tree.context_lens, tree.page_tables, 16, max_tokens, grouping, heads,
        threads, token_rows, slots, tree.positions, tiles)  # fmt: skip
    cuts = tiles[:num_tiles].tolist()
    assert [0, *(end for _, end in cuts)] == [*(begin for begin, _ in cuts), tree.num_tokens]
    for begin, end in cuts:
        assert 0 < end - begin <= max_tokens
        assert grouping or len(set(token_rows[begin:end])) == 1


def test_rows_that_share_pages_share_tiles(row_tree):
    tree = row_tree(16, [(0, 0, 320, 1)] + [(0, 20, 5, 1)] * 15)
    num_tokens = tree.num_tokens
    rows, slots = np.zeros((2, num_tokens), np.int32)
    tiles = np.zeros((num_tokens, 2), np.int32)

    def sizes(grouping, num_kv_heads=1, num_threads=1):
        num_tiles = attention.plan_tokens(
            tree.row_starts, tree.context_lens, tree.page_tables, 16, 16, grouping, num_kv_heads,
            num_threads, rows, slots, tree.positions, tiles)  # fmt: skip
        return (tiles[:num_tiles, 1] - tiles[:num_tiles, 0]).tolist()

    assert sizes(False) == [1] * 16
    assert sizes(True) == [16]
    assert sizes(True, num_threads=2) == [8, 8]
    assert sizes(True, num_kv_heads=2, num_threads=2) == [16]
    assert sizes(True, num_kv_heads=3, num_threads=2) == [8, 8]
    assert sizes(True, num_kv_heads=1, num_threads=4) == [4] * 4
    assert sizes(True) == [16]
    assert tiles[0].tolist() == [0, 16]
    pages = tree.page_tables[rows, tree.positions // 16]
    np.testing.assert_array_equal(slots, pages * 16 + tree.positions % 16)


@pytest.mark.parametrize("path", PATHS)
def test_very_large_scores_do_not_overflow(row_tree, dense_attention, path):
    tree = row_tree(16, [(0, 0, 290, 3)])
    k, v = (rounded(pages) for pages in tree.pages(1, 64, 0))
    q = rounded(tree.queries(1, 64, 0) * 1e4)
    expected = dense_attention(tree, q, k, v, scale=1.0).numpy()
    result = attend(tree, q, k, v, path=path)
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result, expected, rtol=0, atol=0.05)
