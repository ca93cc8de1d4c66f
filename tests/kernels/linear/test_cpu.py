"""Linear layers on packed weights, for every format and dot product that this machine has."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.cpu.program import Program, Stage, Team, float_operand
from ramet.kernels.cpu_support import quantise
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.buffers import aligned_empty
from ramet.kernels.cpu_support.features import multiplies_bf16, supported_dot_paths
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear import cpu_fused as linear_fused
from ramet.kernels.linear.cpu_product import linear_op
from ramet.kernels.linear.cpu_weights import pack
from ramet.kernels.norm import cpu as rows

KINDS = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "F32")


def stored(kind, values):
    """A GGUF tensor's bytes, and the float64 values that they stand for."""
    data = quantize(values, GGMLQuantizationType[kind])
    exact = dequantize(data, GGMLQuantizationType[kind]).astype(np.float64)
    return data.view(np.uint8).reshape(len(values), -1), exact


def run(stages, num_rows, num_threads=1, token_ids=None):
    step = np.zeros(words.SIZE, np.int64)
    scratch = aligned_empty((num_threads, 131072))
    step[words.NUM_TOKENS] = num_rows
    if token_ids is not None:
        step[words.TOKEN_IDS] = token_ids.ctypes.data
    step[words.SCRATCH], step[words.SCRATCH_BYTES] = scratch.ctypes.data, scratch.shape[1]
    team = Team(num_threads)
    team.run(Program(stages), step)
    team.close()


class Quantised:
    """float32 rows in the kernels' int8 form, made by the kernel. Tiles read them by 16."""

    def __init__(self, x, *, bf16_sums=False):
        num_rows, width = x.shape
        self.bf16_sums = bf16_sums
        readable = -(-num_rows // 16) * 16
        self.quants = np.zeros((readable, width), np.int8)[:num_rows]
        sides = np.zeros((2, readable, width // 32), np.float32)
        self.scales, self.scaled = sides[:, :num_rows]
        self.sums = np.zeros((readable, width // 32), np.int32)[:num_rows]
        run([Stage(rows.quantise_rows, {
            rows.X: x.ctypes.data, rows.X_STRIDE: x.strides[0], rows.WIDTH: width,
            rows.ROWS: words.NUM_TOKENS} | self.as_output())], num_rows)  # fmt: skip

    def as_output(self):
        return {
            quantise.QUANTS: self.quants.ctypes.data,
            quantise.QUANT_STRIDE: self.quants.shape[1],
            quantise.SCALES: self.scales.ctypes.data,
            quantise.SCALED_SUMS: self.scaled.ctypes.data,
            quantise.SUMS: self.sums.ctypes.data,
            quantise.SCALE_STRIDE: 4 * self.scales.shape[1],
            quantise.BF16_SUMS: self.bf16_sums,
        }

    def as_input(self):
        return {
            linear.X: self.quants.ctypes.data,
            linear.X_STRIDE: self.quants.shape[1],
            linear.SCALES: self.scales.ctypes.data,
            linear.SCALED_SUMS: self.scaled.ctypes.data,
            linear.SUMS: self.sums.ctypes.data,
            linear.SCALE_STRIDE: 4 * self.scales.shape[1],
        }

    def values(self):
        grouped = self.quants.reshape(*self.scales.shape, 32).astype(np.float64)
        return (grouped * self.scales[..., None]).reshape(self.quants.shape)


def weight_operands(weight):
    return {
        linear.WEIGHT: weight.data.ctypes.data,
        linear.NUM_BLOCKS: weight.num_blocks,
        linear.NUM_GROUPS: weight.num_groups,
        linear.BLOCK_BYTES: weight.data.shape[1],
        linear.ROWS: words.NUM_TOKENS,
    }


def product(weight, x, path, *, y=None, bias=None, num_threads=1):
    """``x``: float32 rows, or ``Quantised`` ones."""
    num_rows = len(x.quants) if isinstance(x, Quantised) else len(x)
    source = x.as_input() if isinstance(x, Quantised) else float_source(x)
    accumulate = y is not None
    if y is None:
        y = np.full((num_rows, 16 * weight.num_blocks), np.nan, np.float32)
    operands = weight_operands(weight) | source | {
        linear.Y: y.ctypes.data, linear.Y_STRIDE: y.strides[0], linear.ACCUMULATE: accumulate,
        linear.TASK_BLOCKS: 2, linear.BIAS: 0 if bias is None else bias.ctypes.data}  # fmt: skip
    run([Stage(linear_op(weight.form.name, path), operands)], num_rows, num_threads)
    return y[:, : weight.num_rows]


def float_source(x):
    return {linear.X: x.ctypes.data, linear.X_STRIDE: x.strides[0]}


@given(st.integers(1, 9), st.integers(1, 6), st.floats(1e-4, 1e4), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_quantised_rows_stand_for_their_values(num_rows, groups, size, seed):
    x = np.random.default_rng(seed).normal(size=(num_rows, 32 * groups)).astype(np.float32) * size
    x[0, :32] = 0
    quantised = Quantised(x)
    largest = np.abs(x).reshape(num_rows, groups, 32).max(-1)
    error = np.abs(quantised.values() - x).reshape(num_rows, groups, 32).max(-1)
    assert (error <= largest / 254 * 1.001).all()
    sums = quantised.quants.reshape(num_rows, groups, 32).astype(np.int32).sum(-1)
    np.testing.assert_array_equal(quantised.sums, -8 * sums)
    np.testing.assert_allclose(quantised.scaled, quantised.scales * sums, rtol=1e-6)
    rounded = Quantised(x, bf16_sums=True)
    np.testing.assert_array_equal(rounded.quants, quantised.quants)
    np.testing.assert_array_equal(bf16_sums(rounded), bf16(quantised.scaled))


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_int8_rows_equal_exact_arithmetic(kind):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(52, 96)).astype(np.float32)  # three blocks and a quarter
    data, exact = stored(kind, values)
    weight = pack(kind, data, values.shape)
    if kind.startswith("F"):
        exact = pack_error_bound(exact, weight)
    x = Quantised(rng.normal(size=(15, 96)).astype(np.float32))
    expected = x.values() @ exact.T
    for path in supported_dot_paths():
        y = product(weight, x, path)
        np.testing.assert_allclose(y, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


def bf16(values):
    """To the nearest bfloat16."""
    return torch.from_numpy(values).to(torch.bfloat16).float().numpy()


def bf16_sums(quantised):
    """The sums that rows of bfloat16 hold in their first halves."""
    num_rows, groups = quantised.scaled.shape
    bits = quantised.scaled.view(np.uint16).reshape(num_rows, -1)[:, :groups]
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.skipif(not multiplies_bf16(), reason="the CPU doesn't multiply bfloat16")
@pytest.mark.parametrize(("kind", "zero_point"), [("Q4_1", 8), ("Q5_1", 16)])
@pytest.mark.parametrize("groups", [1, 4, 5])
def test_middles_are_rounded_once_and_multiplied_exactly(kind, zero_point, groups):
    rng = np.random.default_rng(5)
    values = rng.normal(size=(40, 32 * groups)).astype(np.float32)
    data, exact = stored(kind, values)
    sides = data.reshape(40, groups, -1)[..., :4].copy().view(np.float16).astype(np.float32)
    middles = sides[..., 1] + zero_point * sides[..., 0]
    weight = pack(kind, data, values.shape, middles=True)
    x = Quantised(rng.normal(size=(23, 32 * groups)).astype(np.float32), bf16_sums=True)
    around = exact - np.repeat(middles.astype(np.float64), 32, axis=1)
    rounded = bf16_sums(x).astype(np.float64) @ bf16(middles).astype(np.float64).T
    expected = x.values() @ around.T + rounded
    y = product(weight, x, "avx512-vnni")
    np.testing.assert_allclose(y, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
    # Two roundings to eight bits, and nothing else, keep this from the exact product.
    sums = x.values().reshape(23, groups, 32).sum(-1)
    bound = 2**-7 * 1.01 * np.abs(sums) @ np.abs(middles.astype(np.float64)).T
    slack = 3e-6 * np.abs(expected).max()
    assert (np.abs(y - x.values() @ exact.T) <= bound + slack).all()


def pack_error_bound(exact, weight):
    """What 8-bit packing makes of float weights; at most half a step of 127 off."""
    groups = exact.reshape(len(exact), -1, 32)
    scales = (np.abs(groups).max(-1, keepdims=True) / 127).astype(np.float16).astype(np.float64)
    values = np.rint(groups / scales).clip(-127, 127) * scales
    assert np.abs(values - groups).max() <= 0.6 * scales.max()
    return values.reshape(exact.shape)


@pytest.mark.parametrize("kind", KINDS)
def test_products_with_float_rows_equal_exact_arithmetic(kind):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(33, 64)).astype(np.float32)
    data, exact = stored(kind, values)
    x = rng.normal(size=(11, 64)).astype(np.float32)
    expected = x.astype(np.float64) @ exact.T
    y = product(pack(kind, data, values.shape, exact=True), x, None)
    np.testing.assert_allclose(y, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


@pytest.mark.parametrize("path", [*supported_dot_paths(), None])
def test_extreme_values_do_not_overflow(path):
    for sign in (-1, 1):
        values = np.full((16, 64), 1.0, np.float32)
        values[:, 1::2] = -1
        x = np.full((3, 64), 127.0 * sign, np.float32)
        for kind in ("Q4_0", "Q4_1", "Q8_0"):
            data, exact = stored(kind, values)
            weight = pack(kind, data, values.shape)
            expected = x.astype(np.float64) @ exact.T
            scale = np.abs(x.astype(np.float64)) @ np.abs(exact.T)
            y = product(weight, x if path is None else Quantised(x), path)
            np.testing.assert_allclose(y, expected, rtol=0, atol=1e-6 * scale.max())


@given(
    st.integers(1, 40),
    st.sampled_from(["Q4_0", "Q4_1", "Q8_0"]),
    st.sampled_from(["float32", "int8", "middles"]),
    st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_a_row_does_not_depend_on_the_others(num_rows, kind, activations, seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(48, 96)).astype(np.float32)
    middles = activations == "middles" and multiplies_bf16()
    weight = pack(kind, stored(kind, values)[0], values.shape, middles=middles)
    x = rng.normal(size=(num_rows, 96)).astype(np.float32)
    floats = activations == "float32"
    path = None if floats else supported_dot_paths()[0]

    def multiply(rows, num_threads):
        source = rows if floats else Quantised(rows, bf16_sums=middles)
        return product(weight, source, path, num_threads=num_threads)

    together = multiply(x, 2)
    for row in range(num_rows):
        np.testing.assert_array_equal(multiply(x[row : row + 1], 1)[0], together[row])


def test_results_are_added_and_biased():
    rng = np.random.default_rng(2)
    values = rng.normal(size=(32, 64)).astype(np.float32)
    data, exact = stored("Q8_0", values)
    weight = pack("Q8_0", data, values.shape)
    x = rng.normal(size=(5, 64)).astype(np.float32)
    bias = rng.normal(size=32).astype(np.float32)
    y = rng.normal(size=(5, 32)).astype(np.float32)
    expected = y + x.astype(np.float64) @ exact.T + bias
    result = product(weight, x, None, y=y.copy(), bias=bias)
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("gate", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("num_rows", [1, 7, 20])
@pytest.mark.parametrize("size", [2, 20, 200])
def test_gated_layers_equal_exact_arithmetic(gate, num_rows, size):
    rng = np.random.default_rng(3)
    gate_values, up_values = rng.normal(size=(2, 64, 32)).astype(np.float32)
    gate_data, gate_exact = stored("Q8_0", gate_values)
    up_data, up_exact = stored("Q4_1", up_values)
    gate_weight, up_weight = pack("Q8_0", gate_data, (64, 32)), pack("Q4_1", up_data, (64, 32))
    x = rng.normal(size=(num_rows, 32)).astype(np.float32) * size
    out = np.zeros((num_rows, 64), np.float32)
    quantised = Quantised(np.zeros_like(out))
    operands = weight_operands(gate_weight) | float_source(x) | {
        linear_fused.UP_WEIGHT: up_weight.data.ctypes.data,
        linear_fused.UP_BLOCK_BYTES: up_weight.data.shape[1],
        linear_fused.OUT: out.ctypes.data, linear_fused.OUT_STRIDE: out.strides[0],
        linear_fused.TASK_UNITS: 1}  # fmt: skip
    operation = linear_fused.gated_op(gate, "u8", "u4_min", None)
    run([Stage(operation, operands | quantised.as_output())], num_rows, 2)
    g, u = (x.astype(np.float64) @ exact.T for exact in (gate_exact, up_exact))
    if gate == "silu":
        activated = g * 0.5 * (1 + np.tanh(g / 2))
    else:
        activated = 0.5 * g * (1 + np.tanh(np.sqrt(2 / np.pi) * (g + 0.044715 * g**3)))
    np.testing.assert_allclose(out, activated * u, rtol=1e-5, atol=1e-5 * np.abs(g * u).max())
    # The quantised form stands for the same values.
    step = np.abs(out).reshape(num_rows, -1, 32).max(-1, keepdims=True) / 127
    error = np.abs(quantised.values() - out).reshape(num_rows, -1, 32)
    assert (error <= 0.51 * step).all()


K_QUANTS = {"Q4_K": (144, slice(0, 4)), "Q5_K": (176, slice(0, 4)), "Q6_K": (210, slice(208, 210))}
"""Bytes of a block, and where its float16 factors are."""


def random_k_quants(kind, num_rows):
    """Rows of two blocks of any bytes, and the float64 values that they stand for."""
    rng = np.random.default_rng(4)
    block_bytes, factors = K_QUANTS[kind]
    data = rng.integers(0, 256, (num_rows, 2, block_bytes)).astype(np.uint8)
    shape = *data.shape[:2], (factors.stop - factors.start) // 2
    data[..., factors] = rng.uniform(1e-3, 1e-2, shape).astype(np.float16).view(np.uint8)
    data = data.reshape(num_rows, -1)
    return data, dequantize(data, GGMLQuantizationType[kind]).astype(np.float64)


@pytest.mark.parametrize("kind", K_QUANTS)
def test_k_quants_meet_int8_rows(kind):
    data, exact = random_k_quants(kind, 35)
    weight = pack(kind, data, exact.shape)
    x = Quantised(np.random.default_rng(6).normal(size=(15, 512)).astype(np.float32))
    expected = x.values() @ exact.T
    results = [product(weight, x, path) for path in supported_dot_paths()]
    for y in results:
        # Scales are rounded to float16.
        np.testing.assert_allclose(y, expected, rtol=0, atol=5e-4 * np.abs(expected).max())
        np.testing.assert_array_equal(y, results[0])


@pytest.mark.parametrize("kind", K_QUANTS)
def test_k_quants_keep_their_values(kind):
    data, exact = random_k_quants(kind, 20)
    weight = pack(kind, data, exact.shape)
    x = np.eye(512, dtype=np.float32)
    y = product(weight, x, None)  # the weight itself, transposed
    np.testing.assert_allclose(y, exact.T, rtol=0, atol=2e-3 * np.abs(exact).max())


@pytest.mark.parametrize("kind", [*KINDS, *K_QUANTS])
def test_embeddings_are_the_rows_of_their_table(kind):
    if kind in K_QUANTS:
        data, exact = random_k_quants(kind, 20)
    else:
        values = np.random.default_rng(7).normal(size=(20, 64)).astype(np.float32)
        data, exact = stored(kind, values)
    tokens = np.array([3, 19, 0, 3], np.int32)
    for middles in (False, True):
        table = pack(kind, data, exact.shape, exact=True, middles=middles)
        out = np.zeros((4, exact.shape[1]), np.float32)
        form = table.form
        least = (
            rows.MINIMUM * form.has_minimum
            + rows.MIDDLE * form.has_middle
            + rows.SECOND_SCALE * form.has_halves
        )
        operands = {
            rows.WIDTH: exact.shape[1], rows.OUT: out.ctypes.data, rows.OUT_STRIDE: out.strides[0],
            rows.TABLE: table.data.ctypes.data, rows.TABLE_BLOCK_BYTES: table.data.shape[1],
            rows.TABLE_BITS: form.bits, rows.TABLE_ZERO_POINT: form.zero_point,
            rows.TABLE_LEAST: least, rows.TABLE_GROUP_STRIDE: form.stride,
            rows.EMBED_SCALE: float_operand(3.0)}  # fmt: skip
        run([Stage(rows.embed_rows, operands)], 4, token_ids=tokens)
        expected = 3 * exact[tokens]
        # Middles are rounded to bfloat16.
        error = 2**-8 if form.has_middle else 1e-3
        np.testing.assert_allclose(out, expected, rtol=0, atol=error * np.abs(expected).max())


@pytest.mark.parametrize("width", [32, 96])
def test_norms_are_added(width):
    rng = np.random.default_rng(8)
    x, out = rng.normal(size=(2, 9, width)).astype(np.float32)
    weight = rng.normal(size=width).astype(np.float32)
    exact = x.astype(np.float64)
    exact = out + exact / np.sqrt(np.square(exact).mean(-1, keepdims=True) + 1e-5) * weight
    operands = {
        rows.X: x.ctypes.data, rows.X_STRIDE: x.strides[0], rows.WIDTH: width,
        rows.OUT: out.ctypes.data, rows.OUT_STRIDE: out.strides[0], rows.ROWS: words.NUM_TOKENS,
        rows.WEIGHT: weight.ctypes.data, rows.EPSILON: float_operand(1e-5)}  # fmt: skip
    run([Stage(rows.add_norm_rows, operands)], 9, 2)
    np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-5)


def test_other_types_are_refused():
    with pytest.raises(KeyError):
        pack("IQ2_XXS", np.zeros((1, 66), np.uint8), (1, 256))
