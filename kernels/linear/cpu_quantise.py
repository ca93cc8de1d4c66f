"""Quantises float weights at load: values of 8 or 4 bits with a scale a group of 32 columns."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

Quantise = Literal["int8", "int4", "none"]
"""What tensors stored as floats become; ``none``: they stay as stored."""

STORED_FLOATS: Final = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
"""Stored types that it is about, and the formats in which they stay as stored."""

GROUP: Final = 32
_LEVELS: Final = 15

Float32Array = npt.NDArray[np.float32]
Unpacked = tuple[
    npt.NDArray[Any] | None, npt.NDArray[np.float16] | None, npt.NDArray[np.float16] | None
]
"""Words; scales; and minimums or second scales."""


def _groups(values: Float32Array) -> Float32Array:
    return np.ascontiguousarray(values, np.float32).reshape(len(values), -1, GROUP)


def as_float32(values: Float32Array) -> Unpacked:
    """Values [rows, columns] as they are."""
    return _groups(values).view(np.uint32), None, None


def to_8_bits(values: Float32Array) -> Unpacked:
    """Values [rows, columns] as 8-bit values with a scale, as Q8_0."""
    grouped = _groups(values)
    scales = (np.abs(grouped).max(axis=-1) / np.float32(127)).astype(np.float16)
    divisors = scales.astype(np.float32)[..., None]
    quotients = np.divide(grouped, divisors, out=np.zeros_like(grouped), where=divisors > 0)
    quants = (np.rint(quotients).clip(-127, 127) + 128).astype(np.uint8)
    return quants.view(np.uint32), scales, None


def to_4_bits(values: Float32Array) -> Unpacked:
    """Values [rows, columns] as 4-bit values with a scale and a minimum, as Q4_1.

    Scale and minimum begin as the group's range; a least-squares fit to the rounded values then
    replaces them where that lowers the group's error.
    """
    grouped = _groups(values)
    low = grouped.min(axis=-1)
    scale = (grouped.max(axis=-1) - low) / np.float32(_LEVELS)
    first = _rounded_to(grouped, scale, low)
    mean_q, mean_x = first[0].mean(axis=-1), grouped.mean(axis=-1)
    centred = first[0] - mean_q[..., None]
    spread = np.square(centred).sum(axis=-1)
    fitted = np.divide(
        (centred * grouped).sum(axis=-1), spread, out=np.zeros_like(scale), where=spread > 0
    )
    second = _rounded_to(grouped, fitted, mean_x - fitted * mean_q)
    better = second[3] < first[3]
    q = np.where(better[..., None], second[0], first[0]).astype(np.uint8)
    scales, minimums = (np.where(better, second[i], first[i]) for i in (1, 2))
    packed = np.ascontiguousarray(q[..., :16] | q[..., 16:] << 4)
    return packed.view(np.uint32), scales, minimums


def _rounded_to(
    grouped: Float32Array, scale: Float32Array, low: Float32Array
) -> tuple[Float32Array, npt.NDArray[np.float16], npt.NDArray[np.float16], Float32Array]:
    """Values as multiples of a scale above a minimum; both as float16; and the squared error."""
    scales, minimums = scale.astype(np.float16), low.astype(np.float16)
    d, least = (each.astype(np.float32)[..., None] for each in (scales, minimums))
    quotients = np.divide(grouped - least, d, out=np.zeros_like(grouped), where=d > 0)
    q = np.rint(quotients).clip(0, _LEVELS)
    error: Float32Array = np.square(q * d + least - grouped).sum(axis=-1)
    return q, scales, minimums, error
