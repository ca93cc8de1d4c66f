"""The attention kernels against dense softmax attention in float64, over random trees of rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.attention.attention import attention_shape, paged_attention
from ramet.kernels.attention.costs import attention_costs
from ramet.kernels.attention.inputs import AttentionInputs
from ramet.kernels.attention.plan import SLOT, build_plan
from ramet.kernels.triton_support.dispatch import architecture, interpreting

# The interpreter's logarithm of an empty sum, which is meant to be -inf.
pytestmark = pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")


DEVICE = "cpu" if interpreting() else "cuda"
# Weights are rounded before they meet the values, and the result once more.
TOLERANCES = {torch.bfloat16: 1.6e-2, torch.float16: 2e-3, torch.float32: 1e-5}


def attend(tree, q, k, v, *, scale, soft_cap=0.0, window=0, sinks=None, **options):
    """Attention over a tree's rows, back on the CPU, and the plan that it followed."""
    shape = attention_shape(
        q.shape[1], k.shape[1], q.shape[2], q.dtype, architecture(torch.device(DEVICE))
    )
    plan = build_plan(
        tree.page_tables,
        tree.context_lens,
        tree.row_starts,
        page_size=tree.page_size,
        shape=shape,
        costs=attention_costs("sm_90"),
        window=window,
        **options,
    )
    inputs = AttentionInputs.from_plan(plan, tree.page_tables, tree.positions, DEVICE)
    q, k, v = (tensor.to(DEVICE) for tensor in (q, k, v))
    sinks = None if sinks is None else sinks.to(DEVICE)
    out = paged_attention(
        q, k, v, inputs, scale=scale, soft_cap=soft_cap, window=window, sinks=sinks
    )
    return out.cpu(), plan


heads = st.sampled_from([(1, 1, 64), (4, 2, 64), (3, 1, 80), (20, 1, 64), (2, 1, 128), (2, 2, 256)])


@given(
    st.data(),
    heads,
    st.sampled_from([torch.bfloat16, torch.float16, torch.float32]),
    st.sampled_from(["always", "auto", "never"]),
    st.sampled_from([(0, 0.0), (7, 0.0), (0, 3.0), (40, 2.0)]),
)
@settings(max_examples=40, deadline=None)
def test_any_tree_is_within_the_types_rounding(
    row_trees, dense_attention, data, heads, dtype, grouping, variant
):
    tree = data.draw(row_trees(max_rows=4, max_new=20))
    num_heads, num_kv_heads, head_dim = heads
    window, soft_cap = variant
    k, v = (pages.to(dtype) for pages in tree.pages(num_kv_heads, head_dim, seed=1))
    q = tree.queries(num_heads, head_dim, seed=1).to(dtype)
    arguments = {"scale": head_dim**-0.5, "window": window, "soft_cap": soft_cap}
    out, _ = attend(tree, q, k, v, grouping=grouping, **arguments)
    expected = dense_attention(tree, q, k, v, **arguments)
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=tolerance)


def test_long_rows_are_split_and_merged(row_tree, dense_attention):
    tree = row_tree(16, [(0, 0, 1500, 1), (0, 30, 700, 1), (0, 60, 3, 2)])
    k, v = (pages.bfloat16() for pages in tree.pages(1, 64, seed=2))
    q = tree.queries(2, 64, seed=2).bfloat16()
    out, plan = attend(tree, q, k, v, scale=0.125, grouping="always")
    assert plan.num_slots > tree.num_tokens
    expected = dense_attention(tree, q, k, v, scale=0.125)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=TOLERANCES[torch.bfloat16])


@pytest.mark.parametrize("grouping", ["never", "always"])
def test_sinks_take_their_part_of_each_heads_weights(row_tree, dense_attention, grouping):
    tree = row_tree(16, [(0, 0, 40, 1), (0, 30, 300, 1), (0, 30, 3, 2)])
    k, v = tree.pages(2, 64, seed=3)
    q = tree.queries(4, 64, seed=3)
    arguments = {"scale": 0.125, "sinks": torch.tensor([0.5, -2.0, 3.0, 1.0])}
    out, plan = attend(tree, q, k, v, grouping=grouping, **arguments)
    if grouping == "always":
        assert len(plan.merge_tokens)
    expected = dense_attention(tree, q, k, v, **arguments)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("grouping", ["never", "always"])
def test_fixed_chunks_give_the_same_bits_alone_and_in_a_batch(row_tree, grouping):
    rows = [(0, 0, 300, 1), (0, 16, 90, 1), (0, 16, 3, 5), (0, 3, 40, 1)]
    tree = row_tree(16, rows)
    k, v = (pages.bfloat16() for pages in tree.pages(2, 64, seed=3))
    q = tree.queries(6, 64, seed=3).bfloat16()
    out, plan = attend(tree, q, k, v, scale=0.125, grouping=grouping, chunk_len=64)
    assert (plan.items[:, SLOT] >= 0).any()
    for row in range(len(rows)):
        alone = type(tree)(
            tree.page_size,
            tree.page_tables[row : row + 1],
            tree.context_lens[row : row + 1],
            tree.row_starts[row : row + 2] - tree.row_starts[row],
            tree.num_pages,
        )
        first, end = tree.row_starts[row], tree.row_starts[row + 1]
        single, _ = attend(alone, q[first:end], k, v, scale=0.125, chunk_len=64)
        assert torch.equal(single, out[first:end])


def test_surplus_items_and_tokens_of_a_captured_graph_do_nothing(row_tree):
    tree = row_tree(16, [(0, 0, 40, 1), (0, 2, 600, 1)])
    k, v = (pages.bfloat16() for pages in tree.pages(1, 64, seed=4))
    q = tree.queries(1, 64, seed=4).bfloat16()
    out, plan = attend(tree, q, k, v, scale=0.125, grouping="always")
    inputs = AttentionInputs.from_plan(plan, tree.page_tables, tree.positions, DEVICE)
    padded = AttentionInputs(
        torch.cat([inputs.items, torch.zeros(5, 6, dtype=torch.int32)]),
        len(inputs.items) + 5,
        inputs.num_slots,
        torch.cat([inputs.merge_tokens, torch.full((3,), -1, dtype=torch.int32)]),
        torch.cat([inputs.merge_starts, torch.zeros(3, dtype=torch.int32)]),
        inputs.merge_slots,
        inputs.page_tables,
        inputs.positions,
    )
    q, k, v = (tensor.to(DEVICE) for tensor in (q, k, v))
    assert torch.equal(paged_attention(q, k, v, padded, scale=0.125).cpu(), out)
