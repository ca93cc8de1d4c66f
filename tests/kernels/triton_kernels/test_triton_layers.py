"""Linear layers, normalisation, rotary embedding and activation against float64 references."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.activation import silu_mul, silu_mul_reference
from ramet.kernels.linear.linear import PackedWeight, linear, linear_reference, pack_q4, pack_q8
from ramet.kernels.norm.norm import rms_norm, rms_norm_reference
from ramet.kernels.rotary import rotary_table, rotate_and_write, rotate_and_write_reference

TOLERANCES = {torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10, torch.float32: 1e-6}
dtypes = pytest.mark.parametrize("dtype", TOLERANCES)
seeds = st.integers(0, 2**32)


def close(value, expected, dtype, scale=1.0):
    tolerance = TOLERANCES[dtype] * scale
    torch.testing.assert_close(value.double(), expected.double(), rtol=tolerance, atol=tolerance)


@dtypes
@pytest.mark.parametrize("format_", ["q4", "q8", "dense"])
@given(
    st.sampled_from([1, 16, 17, 40, 70]),
    st.integers(1, 70),
    st.integers(1, 9),
    st.booleans(),
    seeds,
)
@settings(max_examples=5, deadline=None)
def test_linear(dtype, format_, num_rows, num_outputs, num_groups, has_bias, seed):
    torch.manual_seed(seed)
    x = torch.randn(num_rows, num_groups * 32).to(dtype)
    dense = torch.randn(num_outputs, num_groups * 32)
    weight = {
        "q4": pack_q4,
        "q8": pack_q8,
        "dense": lambda w: PackedWeight("dense", w.to(dtype)),
    }[format_](dense)
    bias = torch.randn(num_outputs).to(dtype) if has_bias else None
    expected = linear_reference(x.double(), weight, bias)
    # Unpacked weights are rounded to the type once, so the error grows with the summed terms.
    spread = 4.0 * (num_groups * 32) ** 0.5
    close(linear(x, weight, bias), expected, dtype, spread)
    assert linear(x, weight, bias, out_dtype=torch.float32).dtype == torch.float32


@given(st.integers(2, 40), seeds)
@settings(max_examples=6, deadline=None)
def test_a_batch_invariant_row_is_the_same_in_any_batch(num_rows, seed):
    torch.manual_seed(seed)
    x = torch.randn(num_rows, 96).bfloat16()
    weight = pack_q4(torch.randn(40, 96))
    together = linear(x, weight, batch_invariant=True)
    alone = linear(x[-1:], weight, batch_invariant=True)
    assert torch.equal(together[-1:], alone)


@dtypes
@given(st.integers(1, 6), st.integers(1, 200), st.booleans(), seeds)
@settings(max_examples=6, deadline=None)
def test_rms_norm(dtype, num_rows, width, has_residual, seed):
    torch.manual_seed(seed)
    x = torch.randn(num_rows, width).to(dtype)
    weight = torch.randn(width).to(dtype)
    residual = torch.randn(num_rows, width).to(dtype) if has_residual else None
    expected_residual = None if residual is None else (residual.double() + x).to(dtype)
    source = x if expected_residual is None else expected_residual
    expected = rms_norm_reference(source.double(), weight, 1e-5)
    close(rms_norm(x, weight, 1e-5, residual), expected, dtype, 4)
    if residual is not None:
        assert torch.equal(residual, expected_residual)


@dtypes
@given(st.integers(1, 5), st.integers(1, 1200), seeds)
@settings(max_examples=6, deadline=None)
def test_silu_mul(dtype, num_rows, width, seed):
    torch.manual_seed(seed)
    gate_up = torch.randn(num_rows, 2 * width).to(dtype) * 4
    close(silu_mul(gate_up), silu_mul_reference(gate_up.double()), dtype, 2)


@dtypes
@given(
    st.sampled_from([(1, 1, 64, 64), (4, 2, 80, 40), (3, 1, 96, 96)]),
    st.integers(1, 9),
    st.sampled_from([1, 3, 16]),
    st.booleans(),
    seeds,
)
@settings(max_examples=6, deadline=None)
def test_rotate_and_write(dtype, heads, num_tokens, page_size, interleaved, seed):
    torch.manual_seed(seed)
    num_heads, num_kv_heads, head_dim, rotary_dim = heads
    frequencies = 10000.0 ** (-torch.arange(0, rotary_dim, 2).double() / rotary_dim)
    table = rotary_table(frequencies, 100)
    qkv = torch.randn(num_tokens, (num_heads + 2 * num_kv_heads) * head_dim).to(dtype)
    positions = torch.randint(0, 100, (num_tokens,), dtype=torch.int32)
    slots = torch.randperm(20 * page_size)[:num_tokens].int()
    slots[0] = -1
    pages = [torch.zeros(20, num_kv_heads, page_size, head_dim, dtype=dtype) for _ in "kv"]
    wide_pages = [page.double() for page in pages]
    wide_qkv = qkv.double()
    options = {"num_heads": num_heads, "interleaved": interleaved}
    q = rotate_and_write(qkv, table, positions, slots, *pages, **options)
    wide_q = rotate_and_write_reference(wide_qkv, table, positions, slots, *wide_pages, **options)
    close(q, wide_q, dtype, 4)
    for page, wide_page in zip(pages, wide_pages, strict=True):
        close(page, wide_page, dtype, 4)
        assert (page != 0).any(dim=(1, 3)).sum() == num_tokens - 1
