"""A plan covers each token's keys exactly once, reads shared keys once, and groups when it pays."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.attention.attention import attention_shape
from ramet.kernels.attention.costs import AttentionCosts, AttentionShape, attention_costs
from ramet.kernels.attention.inputs import AttentionInputs
from ramet.kernels.attention.plan import (
    KEY_END,
    KEY_START,
    SLOT,
    TABLE_ROW,
    TOKEN_END,
    TOKEN_START,
    build_plan,
)
from ramet.kernels.attention.reference import paged_attention_reference

SHAPE = AttentionShape(
    num_kv_heads=2, group_size=3, head_dim=16, narrow_tokens=2, wide_tokens=7, block_keys=4
)
COSTS = AttentionCosts(per_byte=1e-9, per_flop=1e-11, per_item=1e-8, num_programs=24)


def plan_of(tree, *, shape=SHAPE, costs=COSTS, **options):
    return build_plan(
        tree.page_tables,
        tree.context_lens,
        tree.row_starts,
        page_size=tree.page_size,
        shape=shape,
        costs=costs,
        **options,
    )


plan_options = st.fixed_dictionaries(
    {
        "grouping": st.sampled_from(["auto", "always", "never"]),
        "window": st.sampled_from([0, 0, 1, 5, 30]),
        "chunk_len": st.sampled_from([0, 0, 48]),
    }
)


@given(st.data(), plan_options)
@settings(max_examples=150, deadline=None)
def test_each_token_reads_each_of_its_keys_once(row_trees, data, options):
    tree = data.draw(row_trees())
    plan = plan_of(tree, **options)
    window = options["window"]
    row_of = np.repeat(np.arange(len(tree.context_lens)), np.diff(tree.row_starts))
    seen = [[] for _ in range(tree.num_tokens)]
    for item in plan.items:
        keys = np.arange(item[KEY_START], item[KEY_END])
        for token in range(item[TOKEN_START], item[TOKEN_END]):
            # The token's own table and the item's must name the same pages there.
            position = tree.positions[token]
            mine = keys[(keys <= position) & ((keys > position - window) if window else True)]
            pages = mine // tree.page_size
            assert np.array_equal(
                tree.page_tables[row_of[token], pages], tree.page_tables[item[TABLE_ROW], pages]
            )
            seen[token].extend(mine.tolist())
    for token, keys in enumerate(seen):
        position = int(tree.positions[token])
        first = max(0, position - window + 1) if window else 0
        assert sorted(keys) == list(range(first, position + 1))


@given(st.data(), plan_options)
@settings(max_examples=100, deadline=None)
def test_partial_results_are_merged_in_key_order(row_trees, data, options):
    plan = plan_of(data.draw(row_trees()), **options)
    key_of_slot = {}
    for item in plan.items:
        if item[SLOT] >= 0:
            for offset in range(item[TOKEN_END] - item[TOKEN_START]):
                key_of_slot[item[SLOT] + offset] = (item[TOKEN_START] + offset, item[KEY_START])
    assert sorted(key_of_slot) == list(range(plan.num_slots))
    assert sorted(plan.merge_slots) == list(range(plan.num_slots))
    for index, token in enumerate(plan.merge_tokens):
        slots = plan.merge_slots[plan.merge_starts[index] : plan.merge_starts[index + 1]]
        sources = [key_of_slot[slot] for slot in slots]
        assert all(source == token for source, _ in sources)
        assert sources == sorted(set(sources))


@given(st.data(), plan_options, st.sampled_from([0.0, 2.0]))
@settings(max_examples=100, deadline=None)
def test_attention_over_any_plan_is_softmax_attention(
    row_trees, dense_attention, data, options, soft_cap
):
    tree = data.draw(row_trees())
    k, v = tree.pages(2, 16, seed=len(tree.context_lens))
    q = tree.queries(6, 16, seed=0)
    inputs = AttentionInputs.from_plan(plan_of(tree, **options), tree.page_tables, tree.positions)
    arguments = {"scale": 0.25, "soft_cap": soft_cap, "window": options["window"]}
    result = paged_attention_reference(q, k, v, inputs, **arguments)
    expected = dense_attention(tree, q, k, v, **arguments)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-12)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_half_precision_stays_within_two_thousandths(row_trees, dense_attention, data):
    tree = data.draw(row_trees())
    k, v = (pages.half() for pages in tree.pages(2, 16, seed=1))
    q = tree.queries(6, 16, seed=1).half()
    inputs = AttentionInputs.from_plan(
        plan_of(tree, grouping="always"), tree.page_tables, tree.positions
    )
    result = paged_attention_reference(q, k, v, inputs, scale=0.25)
    expected = dense_attention(tree, q, k, v, scale=0.25)
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=2e-3)


def test_every_level_of_the_tree_is_read_once(row_tree):
    # Four rows over a root of 4 pages; two of them share 2 more; each has 5 tokens of its own.
    tree = row_tree(16, [(0, 0, 100, 1), (0, 4, 4, 1), (0, 6, 4, 1), (0, 6, 4, 1)])
    keys = {name: plan_of(tree, grouping=name).num_keys_read for name in ("always", "never")}
    assert keys["never"] == sum(tree.context_lens)
    own = 101 - 96 + 5 + 5 + 5
    # The root is read by two tiles of 2 tokens with the narrow tile of this shape, or one wide.
    assert keys["always"] == 64 + 32 + own


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_fixed_chunks_do_not_depend_on_the_batch(row_trees, data):
    """With ``chunk_len`` a row's items end at the same keys alone as in any batch."""
    tree = data.draw(row_trees(max_new=1))
    together = plan_of(tree, grouping="always", chunk_len=48)
    for row in range(len(tree.context_lens)):
        alone = build_plan(
            tree.page_tables[row : row + 1],
            tree.context_lens[row : row + 1],
            np.array([0, 1], np.int32),
            page_size=tree.page_size,
            shape=SHAPE,
            costs=COSTS,
            chunk_len=48,
        )
        mine = [
            tuple(item[[KEY_START, KEY_END]])
            for item in together.items
            if item[TOKEN_START] <= row < item[TOKEN_END]
        ]
        assert sorted(mine) == sorted(tuple(item[[KEY_START, KEY_END]]) for item in alone.items)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942", "cpu", "unknown"])
def test_long_shared_prefixes_are_grouped_and_short_ones_are_not(row_tree, arch):
    shape = AttentionShape(
        num_kv_heads=8, group_size=4, head_dim=128, narrow_tokens=4, wide_tokens=32
    )
    options = {"shape": shape, "costs": attention_costs(arch)}
    long = row_tree(16, [(0, 0, 8192, 1)] + [(0, 512, 100, 1)] * 63)
    grouped = plan_of(long, **options).num_keys_read
    assert grouped < plan_of(long, grouping="never", **options).num_keys_read / 8
    # One token shared by two rows saves less than another partial result costs.
    short = row_tree(1, [(0, 0, 1, 1), (0, 1, 500, 1)])
    plain = plan_of(short, grouping="never", **options)
    assert plan_of(short, **options).num_keys_read == plain.num_keys_read


@given(st.data(), st.sampled_from([1e-3, 1.0, 30.0]))
@settings(max_examples=150, deadline=None)
def test_choosing_by_cost_never_moves_more_than_plain_attention(row_trees, data, scale):
    """Where bytes alone count; partial results are dear or cheap, as the heads are few or many."""
    tree = data.draw(row_trees(max_rows=12, max_new=2))
    shape = AttentionShape(
        num_kv_heads=2,
        group_size=max(1, int(scale)),
        head_dim=16,
        element_bytes=2 if scale >= 1 else 1000,
        narrow_tokens=2,
        wide_tokens=7,
        block_keys=4,
    )
    costs = AttentionCosts(per_byte=1.0, per_flop=0.0, per_item=0.0, num_programs=1)
    moved = {}
    for grouping in ("never", "auto"):
        plan = plan_of(tree, shape=shape, costs=costs, grouping=grouping)
        keys = plan.num_keys_read * 2 * shape.num_kv_heads * 16 * shape.element_bytes
        partials = plan.num_slots * 2 * shape.num_kv_heads * shape.group_size * 17 * 4
        moved[grouping] = keys + partials
    assert moved["auto"] <= moved["never"]


def formula_seconds(plan, shape, costs):
    """What ``AttentionCosts`` says that a plan takes, item by item."""
    key_seconds = 2.0 * shape.head_dim * shape.element_bytes * costs.per_byte
    query_seconds = 4.0 * shape.head_dim * costs.per_flop
    partial_bytes = 2 * shape.group_size * (shape.head_dim + 1) * 4
    seconds = plan.num_slots * partial_bytes * costs.per_byte
    for item in plan.items:
        queries = (item[TOKEN_END] - item[TOKEN_START]) * shape.group_size
        keys = item[KEY_END] - item[KEY_START]
        seconds += keys * max(key_seconds, -(-queries // 16) * 16 * query_seconds) + costs.per_item
    return seconds


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942", "cpu", "unknown"])
@given(
    st.data(),
    st.sampled_from([(1, 1, 64), (2, 4, 64), (8, 1, 128), (8, 4, 128), (1, 8, 256), (2, 4, 256)]),
)
@settings(max_examples=60, deadline=None)
def test_no_plan_is_slower_than_the_plain_one_by_its_own_formula(row_trees, arch, data, heads):
    tree = data.draw(row_trees(max_rows=16, max_new=3))
    num_kv_heads, group_size, head_dim = heads
    num_heads = num_kv_heads * group_size
    shape = attention_shape(num_heads, num_kv_heads, head_dim, torch.float16, arch)
    costs = attention_costs(arch)
    planned, plain = (
        formula_seconds(plan_of(tree, shape=shape, costs=costs, grouping=name), shape, costs)
        for name in ("auto", "never")
    )
    assert planned <= 1.03 * plain


def test_a_long_row_is_split_until_the_device_is_full(row_tree):
    tree = row_tree(16, [(0, 0, 20000, 1)])
    few = AttentionCosts(per_byte=1e-9, per_flop=1e-11, per_item=1e-8, num_programs=1)
    many = AttentionCosts(per_byte=1e-9, per_flop=1e-11, per_item=1e-8, num_programs=64)
    assert plan_of(tree, costs=few).num_items == 1
    assert plan_of(tree, costs=many).num_items * SHAPE.num_kv_heads >= 64 - SHAPE.num_kv_heads


def test_a_chunk_must_be_whole_pages_and_blocks(row_tree):
    tree = row_tree(16, [(0, 0, 20, 1)])
    with pytest.raises(ValueError, match="multiple of the page size"):
        plan_of(tree, chunk_len=24)
