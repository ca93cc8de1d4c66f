"""LLVM vector instructions for kernels: what numba can't say in Python.

Vectors are 16 float32 or 16 int32 wide; LLVM splits them on machines with narrower registers.
Everything takes a builder and LLVM values, addresses are int64 values. Nothing here allows
re-association: the order of a sum is the order in which it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils

from ramet.kernels.cpu_support.features import has_fma, host_features, is_x86

Value = Any
Builder = Any

LANES = 16

F16 = ir.HalfType()
F32 = ir.FloatType()
F64 = ir.DoubleType()
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)


def vector(element: Any, lanes: int = LANES) -> Any:
    return ir.VectorType(element, lanes)


VF32 = vector(F32)
VI32 = vector(I32)


def i32(value: int) -> Value:
    return ir.Constant(I32, value)


def i64(value: int) -> Value:
    return ir.Constant(I64, value)


def f64(value: float) -> Value:
    return ir.Constant(F64, value)


def f32(value: float) -> Value:
    return ir.Constant(F32, float(np.float32(value)))


def vf32(value: float) -> Value:
    return ir.Constant(VF32, [float(np.float32(value))] * LANES)


def vi32(value: int) -> Value:
    return ir.Constant(VI32, [value] * LANES)


def call(b: Builder, name: str, result: Any, arguments: Sequence[Value]) -> Value:
    """Calls an LLVM intrinsic or a C function of this process by name."""
    function = b.module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [argument.type for argument in arguments])
        function = ir.Function(b.module, kind, name)
    return b.call(function, arguments)


def pointer(b: Builder, address: Value, element: Any) -> Value:
    return b.inttoptr(address, element.as_pointer())


def load(b: Builder, address: Value, kind: Any, offset: int = 0) -> Value:
    """Loads a value or vector from ``address`` + ``offset`` bytes, of any alignment."""
    if offset:
        address = b.add(address, i64(offset))
    value = b.load(pointer(b, address, kind))
    value.align = 1
    return value


def store(b: Builder, value: Value, address: Value, offset: int = 0) -> None:
    if offset:
        address = b.add(address, i64(offset))
    instruction = b.store(value, pointer(b, address, value.type))
    instruction.align = 1


def prefetch(b: Builder, address: Value, offset: int = 0) -> None:
    """Asks for the cache line at ``address`` + ``offset``; any address is safe.

    Into the second cache: asking for the first one would fill its few miss buffers, for which the
    loads at hand would wait.
    """
    at = b.add(address, i64(offset)) if offset else address
    arguments = [pointer(b, at, I8), i32(0), i32(2), i32(1)]  # read, second cache, data
    call(b, "llvm.prefetch.p0", ir.VoidType(), arguments)


def fence(b: Builder) -> None:
    """Keeps the compiler from moving loads from behind it to before it. Where a register tile just
    fits, it would load so far ahead that registers have to be saved on the stack."""
    b.asm(ir.FunctionType(ir.VoidType(), []), "", "~{memory}", [], True)


def offset(b: Builder, base: Value, index: Value, stride: int | Value) -> Value:
    """``base + index * stride``, in bytes."""
    if isinstance(stride, int):
        stride = i64(stride)
    return b.add(base, b.mul(index, stride))


def splat(b: Builder, scalar: Value) -> Value:
    """A vector with ``scalar`` in every lane."""
    kind = vector(scalar.type)
    undefined = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(undefined, scalar, i32(0))
    return b.shuffle_vector(first, undefined, ir.Constant(VI32, [0] * LANES))


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """``x * y + z``, rounded once where the CPU can, always in the same way on one machine."""
    if not has_fma():
        return b.fadd(b.fmul(x, y), z)
    name = "llvm.fma.f32" if x.type == F32 else f"llvm.fma.v{x.type.count}f32"
    return call(b, name, x.type, [x, y, z])


def _unary(name: str) -> Callable[[Builder, Value], Value]:
    def apply(b: Builder, x: Value) -> Value:
        suffix = "f32" if x.type == F32 else f"v{x.type.count}f32"
        return call(b, f"llvm.{name}.{suffix}", x.type, [x])

    return apply


absolute = _unary("fabs")
round_nearest = _unary("rint")
square_root = _unary("sqrt")


def maximum(b: Builder, x: Value, y: Value) -> Value:
    """The larger; ``y`` where ``x`` is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


def minimum(b: Builder, x: Value, y: Value) -> Value:
    return b.select(b.fcmp_ordered("<", x, y), x, y)


def constant_like(x: Value, value: float) -> Value:
    return f32(value) if x.type == F32 else vf32(value)


# 2**f for f in [-0.5, 0.5] with 1 at 0: minimax, relative error 9e-8.
_EXP2 = (1.0, 0.69314700, 0.24022242, 0.055507336, 0.0096715130, 0.0013264727)


def exp(b: Builder, x: Value) -> Value:
    """e**x to about 2 units in the last place; exactly 1 at 0, and 0 below -104; for x <= 88."""
    y = b.fmul(x, constant_like(x, 1.4426950408889634))
    y = maximum(b, y, constant_like(x, -151.0))
    n = round_nearest(b, y)
    f = b.fsub(y, n)
    p = constant_like(x, _EXP2[5])
    for k in range(4, -1, -1):
        p = fma(b, p, f, constant_like(x, _EXP2[k]))
    return _scale_by_power(b, p, n)


def _scale_by_power(b: Builder, x: Value, n: Value) -> Value:
    """``x * 2**n`` for x in [0.7, 1.5] and whole n in [-151, 127], rounded once."""
    if x.type == VF32 and "avx512f" in host_features():
        arguments = [x, n, x, ir.Constant(I16, 0xFFFF), i32(4)]  # all lanes, current rounding
        return call(b, "llvm.x86.avx512.mask.scalef.ps.512", VF32, arguments)
    # Two steps: 2**n alone may be below the least power of two that an exponent can hold.
    integers = I32 if x.type == F32 else VI32

    def constant(value: int) -> Value:
        return i32(value) if x.type == F32 else vi32(value)

    whole = b.fptosi(n, integers)
    half = b.ashr(whole, constant(1))
    for part in (half, b.sub(whole, half)):
        power = b.shl(b.add(part, constant(127)), constant(23))
        x = b.fmul(x, b.bitcast(power, x.type))
    return x


def fold(b: Builder, x: Value, operation: Callable[[Builder, Value, Value], Value]) -> Value:
    """Combines the lanes of a vector pairwise, halves first: always in the same order."""
    lanes = x.type.count
    undefined = ir.Constant(x.type, ir.Undefined)
    width = lanes
    while width > 1:
        width //= 2
        indices = [(i + width) % lanes for i in range(lanes)]
        other = b.shuffle_vector(x, undefined, ir.Constant(vector(I32, lanes), indices))
        x = operation(b, x, other)
    return b.extract_element(x, i32(0))


def fadd(b: Builder, x: Value, y: Value) -> Value:
    return b.fadd(x, y)


def add(b: Builder, x: Value, y: Value) -> Value:
    return b.add(x, y)


def load_f16(b: Builder, address: Value, lanes: int, offset: int = 0) -> Value:
    """Loads float16 (finite) as float32: one value, or a vector of ``lanes``."""
    if not is_x86() or "f16c" in host_features() or "avx512f" in host_features():
        kind = F16 if lanes == 1 else vector(F16, lanes)
        return b.fpext(load(b, address, kind, offset), F32 if lanes == 1 else vector(F32, lanes))
    # No such instruction: exponent and fraction in a float32's place, then the exponents' offset.
    half, words, floats = (
        (I16, I32, F32) if lanes == 1 else (vector(I16, lanes), vector(I32, lanes), VF32)
    )

    def constant(value: int) -> Value:
        return i32(value) if lanes == 1 else ir.Constant(words, [value] * lanes)

    bits = b.zext(load(b, address, half, offset), words)
    magnitude = b.bitcast(b.shl(b.and_(bits, constant(0x7FFF)), constant(13)), floats)
    magnitude = b.bitcast(b.fmul(magnitude, constant_like(magnitude, 2.0**112)), words)
    sign = b.shl(b.and_(bits, constant(0x8000)), constant(16))
    return b.bitcast(b.or_(magnitude, sign), floats)


def bf16_pairs(b: Builder, words: Value) -> tuple[Value, Value]:
    """16 words of two bfloat16 each: the low ones and the high ones as float32."""
    low = b.bitcast(b.shl(words, vi32(16)), VF32)
    return low, b.bitcast(b.and_(words, vi32(-0x10000)), VF32)


def f32_to_bf16(b: Builder, x: Value) -> Value:
    """float32 to bfloat16 bits, to nearest, halves to even (finite values)."""
    is_vector = x.type != F32
    kind = VI32 if is_vector else I32

    def constant(value: int) -> Value:
        return vi32(value) if is_vector else i32(value)

    bits = b.bitcast(x, kind)
    odd = b.and_(b.lshr(bits, constant(16)), constant(1))
    rounded = b.add(bits, b.add(odd, constant(0x7FFF)))
    return b.trunc(b.lshr(rounded, constant(16)), vector(I16) if is_vector else I16)


class _BFloat16(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no name for; only ever the element of a vector."""

    null = "0.0"
    intrinsic_name = "bf16"

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _BFloat16)

    def __hash__(self) -> int:
        return hash(_BFloat16)


def _has_bfloat() -> bool:
    """Whether this LLVM's AVX-512 intrinsics take bfloat16 as such (from version 16) or as bits."""
    return tuple(llvm.llvm_version_info) >= (16,)


def _bf16_vector(lanes: int) -> Any:
    if _has_bfloat():
        return vector(_BFloat16(), lanes)
    return vector(I32, lanes // 2) if lanes == 32 else vector(I16, lanes)


def dot_bf16(b: Builder, x: Value, y: Value, accumulator: Value) -> Value:
    """``accumulator`` [16 x float32] plus the products of the two bfloat16 in each word of ``x``
    and ``y``, summed in a fixed order; needs AVX512-BF16."""
    kind = _bf16_vector(32)
    arguments = [accumulator, b.bitcast(x, kind), b.bitcast(y, kind)]
    return call(b, "llvm.x86.avx512bf16.dpbf16ps.512", VF32, arguments)


def round_to_bf16(b: Builder, x: Value) -> Value:
    """16 float32 to 16 bfloat16, as 16 int16, to nearest; needs AVX512-BF16."""
    rounded = call(b, "llvm.x86.avx512bf16.cvtneps2bf16.512", _bf16_vector(16), [x])
    return b.bitcast(rounded, vector(I16))


def pack_bf16(b: Builder, first: Value, second: Value) -> Value:
    """Twice 16 float32 to 32 bfloat16, in 16 words, to nearest, subnormal numbers to 0; needs
    AVX512-BF16. Takes no longer than ``round_to_bf16`` of half as many."""
    kind = vector(_BFloat16(), 32) if _has_bfloat() else vector(I16, 32)
    name = "llvm.x86.avx512bf16.cvtne2ps2bf16.512"
    return b.bitcast(call(b, name, kind, [second, first]), VI32)


BF16_ONES = vi32(0x3F803F80)
"""16 words of two bfloat16 that are 1."""


def permute(b: Builder, table: Value, index: Value) -> Value:
    """``table[index % 16]`` of 16 int32 each; needs AVX-512."""
    return call(b, "llvm.x86.avx512.permvar.si.512", VI32, [table, index])


class Variable:
    """A mutable value; LLVM turns it into registers."""

    def __init__(self, b: Builder, initial: Value) -> None:
        self._b = b
        self._slot = cgutils.alloca_once(b, initial.type)
        b.store(initial, self._slot)

    def get(self) -> Value:
        return self._b.load(self._slot)

    def set(self, value: Value) -> None:
        self._b.store(value, self._slot)


@cache
def vpdpbusd_takes_bytes() -> bool:
    """Whether this LLVM's ``vpdpbusd`` takes byte vectors (from version 22) or int32 vectors."""
    return tuple(llvm.llvm_version_info) >= (22,)
