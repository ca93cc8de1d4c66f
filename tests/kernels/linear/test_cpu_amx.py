"""Tiles give the bits of vector instructions, for every format and number of rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.kernels.cpu.program import Program, Stage, Team
from ramet.kernels.cpu_support import quantise
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.buffers import aligned_empty
from ramet.kernels.cpu_support.features import (
    pairs_middles,
    supported_dot_paths,
    tiles_of,
    vector_path,
)
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear import cpu_fused, cpu_kv
from ramet.kernels.linear.cpu_product import linear_op
from ramet.kernels.linear.cpu_weights import FORMATS, PackedWeight

PATHS = ["amx-emulated", *(path for path in supported_dot_paths() if tiles_of(path))]
FORMAT_NAMES = ["u4_min", "u4_mid", "u4", "u8_min", "u8_mid", "u8_half", "u8"]
# Compiling for tiles takes a while: emulated ones meet each kind of format once.
CASES = [
    (path, name)
    for path in PATHS
    for name in FORMAT_NAMES
    if path != "amx-emulated" or name in ("u4", "u8_min", "u8_half")
]
MOST_ROWS = 83


def random_weight(form_name, num_blocks, num_groups, rng):
    """A weight of any values that the format holds, in blocks of 16 rows."""
    form = FORMATS[form_name]
    data = aligned_empty((num_blocks, form.block_bytes(num_groups)))
    groups = data[:, : num_groups * form.stride].reshape(num_blocks, num_groups, form.stride)
    # With minimums, 8 bits hold values of 5 or 6.
    most = 64 if form.bits == 8 and form.zero_point != 128 else 256
    groups[..., : form.group_bytes] = rng.integers(0, most, groups[..., : form.group_bytes].shape)
    sides = rng.normal(size=(*groups.shape[:2], (form.stride - form.group_bytes) // 2))
    groups[..., form.group_bytes :] = sides.astype(np.float16).view(np.uint8)
    return PackedWeight(form, 16 * num_blocks, 32 * num_groups, data)


class Rows:
    """Random quantised activations of ``num_rows``; rows up to a multiple of 16 are readable."""

    def __init__(self, num_rows, num_groups, rng, *, bf16_sums):
        self.num_rows = num_rows
        shape = (-(-num_rows // 16) * 16, num_groups)
        self.quants = rng.integers(-127, 128, (shape[0], 32 * num_groups)).astype(np.int8)
        self.scales = rng.uniform(0.5, 2, shape).astype(np.float32)
        sums = self.quants.reshape(*shape, 32).sum(-1, dtype=np.int32)
        self.sums = -8 * sums
        self.scaled = (self.scales * sums).astype(np.float32)
        if bf16_sums:
            self.scaled.view(np.uint16).reshape(len(sums), -1)[:, :num_groups] = (
                self.scaled.view(np.uint32) >> 16
            )

    def operands(self):
        return {
            linear.X: self.quants.ctypes.data, linear.X_STRIDE: self.quants.shape[1],
            linear.SCALES: self.scales.ctypes.data, linear.SCALED_SUMS: self.scaled.ctypes.data,
            linear.SUMS: self.sums.ctypes.data, linear.SCALE_STRIDE: 4 * self.scales.shape[1],
            linear.ROWS: words.NUM_TOKENS}  # fmt: skip


def weight_operands(weight):
    return {
        linear.WEIGHT: weight.data.ctypes.data, linear.NUM_BLOCKS: weight.num_blocks,
        linear.NUM_GROUPS: weight.num_groups, linear.BLOCK_BYTES: weight.data.shape[1]}  # fmt: skip


def run(operation, operands, num_rows, **step_words):
    """Runs one operation in two threads."""
    step = np.zeros(words.SIZE, np.int64)
    scratch = aligned_empty((2, 131072))
    step[words.NUM_TOKENS] = num_rows
    step[words.SCRATCH], step[words.SCRATCH_BYTES] = scratch.ctypes.data, scratch.shape[1]
    for name, array in step_words.items():
        step[getattr(words, name)] = array.ctypes.data
    team = Team(2)
    team.run(Program([Stage(operation, operands)]), step)
    team.close()


@pytest.mark.parametrize(("path", "form_name"), CASES)
@given(
    st.integers(1, MOST_ROWS),
    st.integers(1, 5),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
    st.integers(0, 2**32),
)
@settings(max_examples=15, deadline=None)
def test_linear_layers(path, form_name, num_rows, groups, blocks, accumulates, biased, seed):
    if FORMATS[form_name].has_middle and not pairs_middles(path):
        pytest.skip("the CPU doesn't multiply bfloat16")
    rng = np.random.default_rng(seed)
    weight = random_weight(form_name, blocks, groups, rng)
    rows = Rows(num_rows, groups, rng, bf16_sums=weight.form.has_middle)
    bias = rng.normal(size=16 * blocks).astype(np.float32)
    before = rng.normal(size=(num_rows + 1, 16 * blocks)).astype(np.float32)
    results = []
    for each in (vector_path(path), path):
        y = before.copy()
        operands = weight_operands(weight) | rows.operands() | {
            linear.Y: y.ctypes.data, linear.Y_STRIDE: y.strides[0],
            linear.ACCUMULATE: accumulates, linear.BIAS: bias.ctypes.data if biased else 0,
            linear.TASK_BLOCKS: 2}  # fmt: skip
        run(linear_op(form_name, each), operands, num_rows)
        results.append(y)
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(results[0][-1], before[-1])  # no row more than there are
    assert (results[0][:num_rows] != before[:num_rows]).any()


@pytest.mark.parametrize("path", PATHS)
@given(st.integers(1, MOST_ROWS), st.integers(1, 3), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_gated_layers(path, num_rows, groups, seed):
    rng = np.random.default_rng(seed)
    gate, up = (random_weight(name, 4, groups, rng) for name in ("u8", "u4_min"))
    rows = Rows(num_rows, groups, rng, bf16_sums=False)
    results = []
    for each in (vector_path(path), path):
        out = np.zeros((num_rows, 64), np.float32)
        quantised = Rows(num_rows, 2, np.random.default_rng(0), bf16_sums=False)
        operands = weight_operands(gate) | rows.operands() | {
            cpu_fused.UP_WEIGHT: up.data.ctypes.data,
            cpu_fused.UP_BLOCK_BYTES: up.data.shape[1], cpu_fused.TASK_UNITS: 1,
            cpu_fused.OUT: out.ctypes.data, cpu_fused.OUT_STRIDE: out.strides[0],
            quantise.QUANTS: quantised.quants.ctypes.data, quantise.QUANT_STRIDE: 64,
            quantise.SCALES: quantised.scales.ctypes.data, quantise.SCALE_STRIDE: 8,
            quantise.SCALED_SUMS: quantised.scaled.ctypes.data,
            quantise.SUMS: quantised.sums.ctypes.data}  # fmt: skip
        run(cpu_fused.gated_op("silu", "u8", "u4_min", each), operands, num_rows)
        results.append((out, quantised.quants[:num_rows], quantised.scales[:num_rows]))
    for expected, result in zip(*results, strict=True):
        np.testing.assert_array_equal(result, expected)
    assert np.isfinite(results[0][0]).all()
    assert results[0][0].any(axis=1).all()


@pytest.mark.parametrize("path", PATHS)
@given(st.integers(1, MOST_ROWS), st.sampled_from([32, 64]), st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_projections_to_heads(path, num_rows, head_dim, seed):
    rng = np.random.default_rng(seed)
    weight = random_weight("u4", 2 * head_dim // 16, 3, rng)
    rows = Rows(num_rows, 3, rng, bf16_sums=False)
    positions = np.arange(num_rows, dtype=np.int32)
    angles = rng.uniform(0, 6, (num_rows, head_dim // 2))
    cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    results = []
    for each in (vector_path(path), path):
        out = np.zeros((num_rows, 2 * head_dim), np.float32)
        operands = weight_operands(weight) | rows.operands() | {
            cpu_fused.HEAD_KIND: cpu_fused.QUERIES, cpu_kv.HEAD_DIM: head_dim,
            cpu_fused.HEAD_OUT: out.ctypes.data, cpu_fused.HEAD_OUT_STRIDE: out.strides[0],
            cpu_fused.ROPE_DIM: head_dim, cpu_fused.COSINES: cosines.ctypes.data,
            cpu_fused.SINES: sines.ctypes.data,
            cpu_fused.QUERY_SCALE: int(np.float64(1).view(np.int64))}  # fmt: skip
        run(cpu_fused.heads_op("u4", each), operands, num_rows, POSITIONS=positions)
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert results[0].any(axis=1).all()
