# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Activations as int8, for linear layers with integer dot products.

32 values share a scale: ``scale * q`` stands for a value, |q| <= 127. Each group also has the sum
of its q times -8 (int32), for weight formats with zero points, or the sum of its values, for those
with minimums (float32) or middles (bfloat16).

Any operation whose result a linear layer reads can write it in this form; these are its operands.
"""

from __future__ import annotations

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.ir import F32, I8, VF32, VI32
from ramet.kernels.cpu_support.memory import load_i64

QUANTS, QUANT_STRIDE = 30, 31  # int8 rows, bytes between them; address 0: not wanted
SCALES, SCALED_SUMS, SUMS = 32, 33, 34  # values a row and group
SCALE_STRIDE = 35  # bytes between rows, of all three
BF16_SUMS = 36  # whether SCALED_SUMS are bfloat16


@intrinsic
def _quantise(typingctx, x, num_groups, quants, scales, scaled_sums, sums, bf16):  # type: ignore[no-untyped-def]
    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        x, num_groups, quants, scales, scaled_sums, sums, bf16 = args
        rounded = b.icmp_unsigned("!=", bf16, vec.i64(0))
        with cgutils.for_range(b, num_groups) as loop:
            g = loop.index
            at = vec.offset(b, x, g, 128)
            parts = [vec.load(b, at, VF32, 64 * i) for i in range(2)]
            largest = vec.maximum(b, *(vec.absolute(b, part) for part in parts))
            amax = vec.fold(b, largest, vec.maximum)
            amax = vec.maximum(b, amax, vec.f32(1e-20))
            scale = b.fmul(amax, vec.f32(1 / 127))
            inverse = vec.splat(b, b.fdiv(vec.f32(127.0), amax))
            target = vec.offset(b, quants, g, 32)
            total = None
            for i, part in enumerate(parts):
                q = b.fptosi(vec.round_nearest(b, b.fmul(part, inverse)), VI32)
                vec.store(b, b.trunc(q, vec.vector(I8)), target, 16 * i)
                total = q if total is None else b.add(total, q)
            total = vec.fold(b, total, vec.add)
            vec.store(b, scale, vec.offset(b, scales, g, 4))
            vec.store(b, b.mul(total, vec.i32(-8)), vec.offset(b, sums, g, 4))
            scaled = b.fmul(scale, b.sitofp(total, F32))
            with b.if_else(rounded) as (then, otherwise):
                with then:
                    vec.store(b, vec.f32_to_bf16(b, scaled), vec.offset(b, scaled_sums, g, 2))
                with otherwise:
                    vec.store(b, scaled, vec.offset(b, scaled_sums, g, 4))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 7)), codegen


@njit
def store_quantised(stage, x, row, first_group, num_groups):  # type: ignore[no-untyped-def]
    """Quantises ``32 * num_groups`` float32 at ``x`` into a row, from ``first_group`` on, if the
    stage wants quantised rows."""
    quants = load_i64(stage, QUANTS)
    if quants != 0:
        row_at = row * load_i64(stage, SCALE_STRIDE)
        side = row_at + 4 * first_group
        bf16 = load_i64(stage, BF16_SUMS)
        _quantise(
            x,
            num_groups,
            quants + row * load_i64(stage, QUANT_STRIDE) + 32 * first_group,
            load_i64(stage, SCALES) + side,
            load_i64(stage, SCALED_SUMS) + row_at + (2 if bf16 != 0 else 4) * first_group,
            load_i64(stage, SUMS) + side,
            bf16,
        )
