"""Weights of linear layers, laid out for ``linear``.

A block holds 16 rows, group of 32 columns by group: the group's quantised values, its 16 scales
(float16), and, where the format has them, its 16 minimums (float16), so that a block is read as
one stream. Instead of minimums, formats for CPUs that multiply bfloat16 hold middles, the values
of the zero point: they are small, so rounding them to bfloat16 is lost in the rounding of
activations. Formats with halves have a second scale in that place, for the columns from the 17th
on. Word t of row r (four columns) lies at word ``16 * t + r`` of its group. 4-bit words
hold columns 4t to 4t+3 in their low and 16+4t to 16+4t+3 in their high nibbles, as GGML's blocks
do, so packing moves whole words and changes no value. Floats of 16 and 32 bits have no scales;
column k of row r is number ``16 * k + r``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu_support.buffers import CACHE_LINE, aligned_empty
from ramet.kernels.linear.cpu_quantise import GROUP as GROUP
from ramet.kernels.linear.cpu_quantise import (
    STORED_FLOATS,
    Quantise,
    Unpacked,
    as_float32,
    to_4_bits,
    to_8_bits,
)
from ramet.kernels.linear.cpu_words import (
    q4_k_sides,
    q4_k_words,
    q6_k_sides,
    q6_k_words,
    q8_0_words,
)

UInt8Array = npt.NDArray[np.uint8]
Float32Array = npt.NDArray[np.float32]
Allocate = Callable[[tuple[int, int]], UInt8Array]
"""Makes an uninitialised array of bytes that begins on a cache line."""

ReadRows = Callable[[int, int], UInt8Array]
"""The stored bytes of the rows from the first to before the second: [rows, bytes a row]."""

BLOCK_ROWS: Final = 16
_PIECE_VALUES: Final = 1 << 20  # what is unpacked at a time


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """A stored value q of a group stands for ``scale * (q - zero_point)`` plus, if it has one, the
    group's minimum or middle. With halves, a group has two scales, of 16 columns each."""

    name: str
    bits: int
    zero_point: int = 0  # 0, or a power of two from 8 on
    has_minimum: bool = False
    has_middle: bool = False
    has_halves: bool = False

    @property
    def is_float(self) -> bool:
        """Whether values are floats, which meet float32 activations only."""
        return self.bits >= 16

    @property
    def group_bytes(self) -> int:
        """Bytes of 16 rows' quantised values."""
        return BLOCK_ROWS * GROUP * self.bits // 8

    @property
    def stride(self) -> int:
        """Bytes from one group of a block to the next."""
        has_others = self.has_minimum or self.has_middle or self.has_halves
        num_sides = 0 if self.is_float else 1 + has_others
        return self.group_bytes + 2 * BLOCK_ROWS * num_sides

    def block_bytes(self, num_groups: int) -> int:
        return -(-num_groups * self.stride // CACHE_LINE) * CACHE_LINE


FORMATS: Final = {
    form.name: form
    for form in (
        WeightFormat("u4_min", 4, has_minimum=True),
        WeightFormat("u4_mid", 4, zero_point=8, has_middle=True),
        WeightFormat("u4", 4, zero_point=8),
        WeightFormat("u8_min", 8, has_minimum=True),
        WeightFormat("u8_mid", 8, zero_point=16, has_middle=True),
        WeightFormat("u8_half", 8, zero_point=32, has_halves=True),
        WeightFormat("u8", 8, zero_point=128),
        WeightFormat("f16", 16),
        WeightFormat("bf16", 16),
        WeightFormat("f32", 32),
    )
}


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A linear layer's weight [num_rows, num_columns] in blocks of 16 rows; the last is padded
    with zeros."""

    form: WeightFormat
    num_rows: int
    num_columns: int
    data: UInt8Array  # [num_blocks, block_bytes]

    @property
    def num_blocks(self) -> int:
        return len(self.data)

    @property
    def num_groups(self) -> int:
        return self.num_columns // GROUP


def pack(
    kind: str,
    data: UInt8Array,
    shape: tuple[int, int],
    *,
    exact: bool = False,
    quantise: Quantise = "int8",
    middles: bool = False,
    allocate: Allocate = aligned_empty,
) -> PackedWeight:
    """Lays a GGUF tensor's bytes [rows, bytes a row] out for the kernels.

    Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 keep their values and scales as stored; Q4_K, Q5_K and Q6_K keep
    their values, and each scale and minimum, a product of two numbers there, is rounded to float16.
    5- and 6-bit values take 8 bits. F32, F16 and BF16 become what ``quantise`` says: 8-bit values
    with a scale a group, as Q8_0, 4-bit values with a scale and a minimum, as Q4_1, or what they
    are. Q2_K, Q3_K, IQ4_NL, IQ4_XS and MXFP4 become 8-bit values. With ``exact``, both become
    float32. With ``middles``, formats with minimums have those instead.
    ``KeyError`` for any other type.
    """
    stored = data.reshape(shape[0], -1)
    return pack_rows(
        kind,
        lambda first, end: stored[first:end],
        shape,
        exact=exact,
        quantise=quantise,
        middles=middles,
        allocate=allocate,
    )


def pack_rows(
    kind: str,
    rows: ReadRows,
    shape: tuple[int, int],
    *,
    exact: bool = False,
    quantise: Quantise = "int8",
    middles: bool = False,
    allocate: Allocate = aligned_empty,
) -> PackedWeight:
    """As ``pack``, of stored rows that are read a few at a time: what is unpacked of them in
    between takes no more memory than that."""
    num_rows, num_columns = shape
    if kind in _FLOATS and num_columns % GROUP:
        raise ValueError(f"a linear layer's {num_columns} inputs are not a multiple of {GROUP}")
    form_name = _form_name(kind, quantise, exact=exact)
    form = FORMATS[form_name.replace("_min", "_mid") if middles else form_name]
    num_blocks = -(-num_rows // BLOCK_ROWS)
    data: UInt8Array = allocate((num_blocks, form.block_bytes(-(-num_columns // GROUP))))
    step = max(1, _PIECE_VALUES // (BLOCK_ROWS * num_columns))
    for block in range(0, num_blocks, step):
        first, end = block * BLOCK_ROWS, min((block + step) * BLOCK_ROWS, num_rows)
        target = data[block : block + step]
        if end % BLOCK_ROWS:
            target[-1] = 0
        stored = rows(first, end).reshape(end - first, -1)
        if form.bits == 16:
            _lay_out(form, _groups_of_halves(stored), None, None, target)
            continue
        if kind in _FLOATS:
            values = _FLOATS[kind](stored).reshape(end - first, num_columns)
            words, scales, others = _QUANTISERS[form_name](values)
        else:
            block_len = _BLOCK_LENS.get(kind, GROUP)
            pieces = stored.reshape(end - first, num_columns // block_len, -1)
            words, scales, others = _UNPACK[kind][1](pieces)
            if words is None:
                stored = np.ascontiguousarray(stored)
                source = stored.ctypes.data, stored.shape[1], end - first, pieces.shape[1]
                place = target.ctypes.data, target.shape[1], form.stride
                _WORDS[kind](*source, *place)
                if kind in _SIDES:
                    _SIDES[kind](*source, *place, form.has_middle)
                    continue
        if form.has_middle and others is not None and scales is not None:
            middle = others.astype(np.float32) + form.zero_point * scales.astype(np.float32)
            _lay_out(form, words, scales, _bf16(middle), target)
        else:
            _lay_out(form, words, scales, others, target)
    return PackedWeight(form, num_rows, num_columns, data)


def packed_bytes(kind: str, shape: tuple[int, int], quantise: Quantise = "int8") -> int:
    """Bytes that ``pack``, without ``exact``, makes of a tensor; ``KeyError`` as there."""
    form = FORMATS[_form_name(kind, quantise, exact=False)]
    num_rows, num_columns = shape
    return -(-num_rows // BLOCK_ROWS) * form.block_bytes(-(-num_columns // GROUP))


def _form_name(kind: str, quantise: Quantise, *, exact: bool) -> str:
    """The format that a type becomes, one with minimums where there is a choice."""
    if kind not in _FLOATS:
        return _UNPACK[kind][0]
    if exact:
        return "f32"
    if kind not in STORED_FLOATS or quantise == "int8":
        return "u8"
    return "u4_min" if quantise == "int4" else STORED_FLOATS[kind]


def _groups_of_halves(stored: UInt8Array) -> npt.NDArray[np.uint16]:
    """Rows of 16-bit floats as [rows, groups, 32]."""
    halves: npt.NDArray[np.uint16] = np.ascontiguousarray(stored).view(np.uint16)
    return halves.reshape(len(stored), -1, GROUP)


def _lay_out(
    form: WeightFormat,
    words: npt.NDArray[Any] | None,
    scales: npt.NDArray[np.float16] | None,
    others: npt.NDArray[np.float16] | npt.NDArray[np.uint16] | None,
    data: UInt8Array,
) -> None:
    """Writes blocks. ``words`` [rows, groups, words a row and group], or None: they are there;
    ``scales`` and ``others`` (minimums, middles or second scales) [rows, groups]."""
    num_blocks = len(data)
    parts: list[tuple[npt.NDArray[Any], int]] = [] if words is None else [(words, 0)]
    for side, values in enumerate((scales, others)):
        if values is not None:
            parts.append((values[..., None], form.group_bytes + 2 * BLOCK_ROWS * side))
    num_rows, num_groups = parts[0][0].shape[:2]
    groups = data[:, : num_groups * form.stride].reshape(num_blocks, num_groups, form.stride)
    for values, first in parts:
        size = BLOCK_ROWS * values.shape[2] * values.itemsize
        target = groups[..., first : first + size].view(values.dtype)
        target = target.reshape(num_blocks, num_groups, values.shape[2], BLOCK_ROWS)
        full = num_rows // BLOCK_ROWS
        whole = values[: full * BLOCK_ROWS].reshape(full, BLOCK_ROWS, *values.shape[1:])
        target[:full] = whole.transpose(0, 2, 3, 1)
        rest = values[full * BLOCK_ROWS :]
        if len(rest):
            target[full, ..., : len(rest)] = rest.transpose(1, 2, 0)


def _bf16(values: Float32Array) -> npt.NDArray[np.uint16]:
    """The bits of bfloat16, to nearest, halves to even."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return rounded.astype(np.uint16)


def _half(blocks: UInt8Array, first: int) -> npt.NDArray[np.float16]:
    """One of each block's float16, where it is."""
    return blocks.view(np.float16)[..., first // 2]


def _words(quants: UInt8Array) -> npt.NDArray[np.uint32]:
    return np.ascontiguousarray(quants).view(np.uint32)


def _q4_0(blocks: UInt8Array) -> Unpacked:
    return _words(blocks[..., 2:]), _half(blocks, 0), None


def _q4_1(blocks: UInt8Array) -> Unpacked:
    return blocks.view(np.uint32)[..., 1:], _half(blocks, 0), _half(blocks, 2)


def _q8_0(blocks: UInt8Array) -> Unpacked:
    return None, _half(blocks, 0), None


def _five_bits(high: UInt8Array, low: UInt8Array) -> UInt8Array:
    """GGML's 5-bit values: 32 fifth bits, and nibbles of values i (low) and i + 16 (high)."""
    fifth = np.unpackbits(high, axis=-1, bitorder="little")
    nibbles = np.concatenate([low & 15, low >> 4], axis=-1)
    values: UInt8Array = nibbles | (fifth << 4)
    return values


def _q5_0(blocks: UInt8Array) -> Unpacked:
    values = _five_bits(blocks[..., 2:6], blocks[..., 6:])
    return _words(values + np.uint8(128 - 16)), _half(blocks, 0), None


def _q5_1(blocks: UInt8Array) -> Unpacked:
    values = _five_bits(blocks[..., 4:8], blocks[..., 8:])
    return _words(values), _half(blocks, 0), _half(blocks, 2)


def _k_scales(blocks: UInt8Array) -> tuple[npt.NDArray[np.float16], npt.NDArray[np.float16]]:
    """Scales and minimums [rows, groups] of the 4- and 5-bit K-quants: two float16 of a block times
    its eight 6-bit pairs, packed in 12 bytes."""
    packed = blocks[..., 4:16]
    low, mid, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=-1)
    minimums = np.concatenate([mid & 63, (high >> 4) | (mid >> 6 << 4)], axis=-1)
    d, least = (_half(blocks, first).astype(np.float32)[..., None] for first in (0, 2))
    rows = len(blocks)
    return (
        (d * scales).astype(np.float16).reshape(rows, -1),
        (-least * minimums).astype(np.float16).reshape(rows, -1),
    )


def _k_nibbles(quants: UInt8Array) -> UInt8Array:
    """Values [rows, groups, 32] from bytes of two groups each: low nibbles, then high ones."""
    pairs = quants.reshape(*quants.shape[:-1], -1, 1, GROUP)
    values: UInt8Array = np.concatenate([pairs & 15, pairs >> 4], axis=-2)
    return values.reshape(len(quants), -1, GROUP)


def _q5_k(blocks: UInt8Array) -> Unpacked:
    # Byte i of the high bits holds the fifth bit of value i of each of the block's eight groups.
    fifth = np.unpackbits(blocks[..., 16:48, None], axis=-1, bitorder="little").swapaxes(-1, -2)
    high = fifth.reshape(len(blocks), -1, GROUP) << np.uint8(4)
    values: UInt8Array = _k_nibbles(blocks[..., 48:]) | high
    return _words(values), *_k_scales(blocks)


def _compiled(_blocks: UInt8Array) -> Unpacked:
    """Nothing: compiled code writes all of it."""
    return None, None, None


_UNPACK: Final = {
    "Q4_0": ("u4", _q4_0),
    "Q4_1": ("u4_min", _q4_1),
    "Q4_K": ("u4_min", _compiled),
    "Q5_K": ("u8_min", _q5_k),
    "Q6_K": ("u8_half", _compiled),
    "Q5_0": ("u8", _q5_0),
    "Q5_1": ("u8_min", _q5_1),
    "Q8_0": ("u8", _q8_0),
}

_WORDS: Final = {"Q4_K": q4_k_words, "Q6_K": q6_k_words, "Q8_0": q8_0_words}
"""Types whose words compiled code makes, in a single pass."""

_SIDES: Final = {"Q4_K": q4_k_sides, "Q6_K": q6_k_sides}
"""Types of them whose scales it makes, too."""

_BLOCK_LENS: Final = {"Q4_K": 256, "Q5_K": 256, "Q6_K": 256}


def _dequantiser(name: str) -> Callable[[UInt8Array], Float32Array]:
    def dequantise(data: UInt8Array) -> Float32Array:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        values: Float32Array = dequantize(data, GGMLQuantizationType[name])
        return values

    return dequantise


_FLOATS: Final = {
    "F32": lambda data: data.view(np.float32),
    "F16": lambda data: data.view(np.float16).astype(np.float32),
    "BF16": lambda data: (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32),
    **{name: _dequantiser(name) for name in ("Q2_K", "Q3_K", "IQ4_NL", "IQ4_XS", "MXFP4")},
}
"""Dequantisers of stored bytes to float32; the last five have 16 uneven levels or shapes."""

_QUANTISERS: Final = {"f32": as_float32, "u8": to_8_bits, "u4_min": to_4_bits}
