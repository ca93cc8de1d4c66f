"""``Tensor``: one tensor of a model file, in its stored format."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UInt8Array = npt.NDArray[np.uint8]
MakeRows = Callable[[int, int], UInt8Array]
"""Gives the bytes of the rows from the first to before the second."""


@dataclass(frozen=True, slots=True, eq=False)
class GgufTensor:
    """One tensor of a model file.

    Attributes:
        name: such as ``blk.0.attn_q.weight``.
        type: the name of its storage, a value of ``gguf.TENSOR_TYPES``, such as ``Q4_1``.
        shape: outermost dimension first, so a linear layer is ``(out_features, in_features)``.
        data: the stored bytes, read-only uint8[rows, bytes a row]; a view of the mapped file.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    data: UInt8Array

    @property
    def num_rows(self) -> int:
        """Rows of ``data``: all dimensions but the innermost."""
        return math.prod(self.shape[:-1])

    def rows(self, first: int, end: int) -> UInt8Array:
        """The stored bytes of some rows; no others are read."""
        return self.data[first:end]

    def to_float32(self) -> npt.NDArray[np.float32]:
        """The tensor's values, float32[shape]; always a copy."""
        return dequantised(self.type, self.data).reshape(self.shape)


class MadeTensor(GgufTensor):
    """A tensor whose rows are made when they are read, from those of others: nothing is kept."""

    __slots__ = ("_make",)

    def __init__(self, name: str, type: str, shape: tuple[int, ...], make: MakeRows) -> None:
        for key, value in (("name", name), ("type", type), ("shape", shape), ("_make", make)):
            object.__setattr__(self, key, value)

    @property
    def data(self) -> UInt8Array:
        return self.rows(0, self.num_rows)

    def rows(self, first: int, end: int) -> UInt8Array:
        made: UInt8Array = self._make(first, end)  # type: ignore[attr-defined]
        return made


def part_of(tensor: GgufTensor, index: int) -> GgufTensor:
    """One of the tensors that a tensor with one more dimension is made of."""
    shape = tensor.shape[1:]
    size = math.prod(shape[:-1])

    def rows(first: int, end: int) -> UInt8Array:
        return tensor.rows(index * size + first, index * size + end)

    return MadeTensor(tensor.name, tensor.type, shape, rows)


def dequantised(kind: str, data: UInt8Array) -> npt.NDArray[np.float32]:
    """Stored bytes [rows, bytes a row] as float32 [rows, values a row]; always a copy."""
    if kind == "F32":
        return np.ascontiguousarray(data).view("<f4").astype(np.float32, copy=True)
    if kind == "F16":
        return np.ascontiguousarray(data).view("<f2").astype(np.float32)
    if kind == "BF16":
        return (np.ascontiguousarray(data).view("<u2").astype(np.uint32) << 16).view(np.float32)
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    values: npt.NDArray[np.float32] = dequantize(data, GGMLQuantizationType[kind])
    return values
