"""Sums of byte products, for each path of ``features.DotPath``; all give the same integers.

A group is 32 weights of 16 rows, as eight vectors of 16 words: word r holds four unsigned bytes of
row r. They meet the 32 signed bytes of one activation group. Half a group is four vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.features import DotPath
from ramet.kernels.cpu_support.ir import I8, I16, I32, VI32, Builder, Value

SDOT = "llvm.aarch64.neon.sdot.v4i32.v16i8"
_V16I16 = vec.vector(I16, 16)


def group_dot(
    b: Builder,
    path: DotPath,
    bits: int,
    weights: Sequence[Value],
    x: Value,
    start: Value,
    num_chains: int,
) -> Value:
    """``start`` [16 x i32] plus each row's products with the bytes at address ``x``.

    ``weights`` are the vectors; their bytes are below 2**bits. ``num_chains``: how many sums
    to keep apart, where one chain of dependent instructions would be waited for.
    """
    words = [vec.splat(b, vec.load(b, x, I32, 4 * t)) for t in range(len(weights))]
    if path == "avx512-vnni":
        sums = [start] + [vec.vi32(0)] * (num_chains - 1)
        for t, (u, s) in enumerate(zip(weights, words, strict=True)):
            sums[t % num_chains] = _vpdpbusd(b, 512, sums[t % num_chains], u, s)
        while len(sums) > 1:
            sums = [b.add(*pair) for pair in zip(sums[::2], sums[1::2], strict=True)]
        return sums[0]
    if path == "avx-vnni":
        return _by_halves(b, weights, words, start, _vnni_half)
    if path == "neon-dot":
        return _sdot(b, bits, weights, x, words, start)
    if path == "avx2":
        half = _avx2_half_4_bits if bits == 4 else _avx2_half_8_bits
        return _by_halves(b, weights, words, start, half)
    return _portable(b, bits, weights, words, start)


def _vpdpbusd(b: Builder, width: int, accumulator: Value, u: Value, s: Value) -> Value:
    if vec.vpdpbusd_takes_bytes():
        kind = vec.vector(I8, width // 8)
        u, s = b.bitcast(u, kind), b.bitcast(s, kind)
    name = f"llvm.x86.avx512.vpdpbusd.{width}"
    return vec.call(b, name, accumulator.type, [accumulator, u, s])


def _by_halves(b: Builder, weights: Any, words: Any, start: Value, half: Any) -> Value:
    """Works on lanes 0 to 7 and 8 to 15 apart."""
    parts = []
    for first in (0, 8):
        lanes = ir.Constant(vec.vector(I32, 8), list(range(first, first + 8)))

        def take(value: Value, lanes: Value = lanes) -> Value:
            return b.shuffle_vector(value, ir.Constant(VI32, ir.Undefined), lanes)

        parts.append(half(b, [take(u) for u in weights], [take(s) for s in words], take(start)))
    return b.shuffle_vector(parts[0], parts[1], ir.Constant(VI32, list(range(16))))


def _vnni_half(b: Builder, weights: Any, words: Any, start: Value) -> Value:
    for u, s in zip(weights, words, strict=True):
        start = _vpdpbusd(b, 256, start, u, s)
    return start


def _avx2_half_4_bits(b: Builder, weights: Any, words: Any, start: Value) -> Value:
    """Pair sums of eight words stay in 16 bits: 8 * 2 * 15 * 128 < 2**15."""
    kind = vec.vector(I8, 32)
    total = None
    for u, s in zip(weights, words, strict=True):
        arguments = [b.bitcast(u, kind), b.bitcast(s, kind)]
        pairs = vec.call(b, "llvm.x86.avx2.pmadd.ub.sw", _V16I16, arguments)
        total = pairs if total is None else b.add(total, pairs)
    ones = ir.Constant(_V16I16, [1] * 16)
    sums = vec.call(b, "llvm.x86.avx2.pmadd.wd", start.type, [total, ones])
    return b.add(start, sums)


def _avx2_half_8_bits(b: Builder, weights: Any, words: Any, start: Value) -> Value:
    """Even and odd bytes widened to 16 bits, so that no pair sum saturates."""
    for u, s in zip(weights, words, strict=True):
        for wide_u, wide_s in zip(_widen(b, u, False), _widen(b, s, True), strict=True):
            sums = vec.call(b, "llvm.x86.avx2.pmadd.wd", start.type, [wide_u, wide_s])
            start = b.add(start, sums)
    return start


def _widen(b: Builder, words: Value, signed: bool) -> tuple[Value, Value]:
    """Even and odd bytes as 16-bit numbers."""
    kind = vec.vector(I16, 2 * words.type.count)
    shorts = b.bitcast(words, kind)
    eight = ir.Constant(kind, [8] * kind.count)
    shift = b.ashr if signed else b.lshr
    return shift(b.shl(shorts, eight), eight), shift(shorts, eight)


def _sdot(
    b: Builder, bits: int, weights: Sequence[Value], x: Value, words: Any, start: Value
) -> Value:
    """Works on four rows at a time, with signed bytes: those of 8 bits less 128, which times the
    sum of the activations is added back."""
    if bits == 8:
        weights = [b.xor(u, vec.vi32(0x80808080 - 2**32)) for u in weights]
        start = b.add(start, b.shl(vec.splat(b, _byte_sum(b, x, len(words))), vec.vi32(7)))
    quarters = []
    for first in range(0, 16, 4):
        lanes = ir.Constant(vec.vector(I32, 4), list(range(first, first + 4)))

        def take(value: Value, lanes: Value = lanes) -> Value:
            return b.shuffle_vector(value, ir.Constant(VI32, ir.Undefined), lanes)

        total = take(start)
        for u, s in zip(weights, words, strict=True):
            total = _sdot_quarter(b, total, take(u), take(s))
        quarters.append(total)
    eight = ir.Constant(vec.vector(I32, 8), list(range(8)))
    halves = [b.shuffle_vector(*quarters[at : at + 2], eight) for at in (0, 2)]
    return b.shuffle_vector(*halves, ir.Constant(VI32, list(range(16))))


def _sdot_quarter(b: Builder, accumulator: Value, u: Value, s: Value) -> Value:
    kind = vec.vector(I8, 16)
    arguments = [accumulator, b.bitcast(u, kind), b.bitcast(s, kind)]
    return vec.call(b, SDOT, accumulator.type, arguments)


def _byte_sum(b: Builder, x: Value, num_words: int) -> Value:
    """The sum of the signed bytes of ``num_words`` words at ``x``, a multiple of four."""
    kind = vec.vector(I32, 4)
    ones = ir.Constant(kind, [0x01010101] * 4)
    total = ir.Constant(kind, [0] * 4)
    for at in range(0, 4 * num_words, 16):
        total = _sdot_quarter(b, total, ones, vec.load(b, x, kind, at))
    return vec.fold(b, total, vec.add)


def _portable(b: Builder, bits: int, weights: Any, words: Any, start: Value) -> Value:
    """Products in 16 bits: 255 * 128 < 2**15. 4-bit ones are even summed there."""
    total = None
    for u, s in zip(weights, words, strict=True):
        (even_u, odd_u), (even_s, odd_s) = _widen(b, u, False), _widen(b, s, True)
        even, odd = b.mul(even_u, even_s), b.mul(odd_u, odd_s)
        if bits == 4:
            products = b.add(even, odd)
            total = products if total is None else b.add(total, products)
        else:
            start = b.add(start, b.add(_pair_sum(b, even), _pair_sum(b, odd)))
    return start if total is None else b.add(start, _pair_sum(b, total))


def _pair_sum(b: Builder, shorts: Value) -> Value:
    """The sum of the two 16-bit numbers in each word."""
    words = b.bitcast(shorts, VI32)
    sixteen = vec.vi32(16)
    return b.add(b.ashr(b.shl(words, sixteen), sixteen), b.ashr(words, sixteen))
