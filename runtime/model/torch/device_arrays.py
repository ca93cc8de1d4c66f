"""Moving a step's many small arrays to a device in one copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

_ALIGNMENT = 16
_TYPES = {
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint64): torch.int64,  # the same bits
    np.dtype(np.float32): torch.float32,
}

Arrays = Mapping[str, npt.NDArray[Any]]


def upload(arrays: Arrays, device: torch.device) -> dict[str, torch.Tensor]:
    """The arrays as tensors on ``device``; uint64 becomes int64 of the same bits.

    On a GPU they are views of one buffer that one asynchronous copy fills; on the CPU they share
    the arrays' memory where they can.
    """
    if device.type == "cpu":
        return {
            name: torch.from_numpy(np.ascontiguousarray(array)).view(_TYPES[array.dtype])
            for name, array in arrays.items()
        }
    packed = pack(arrays, pin_memory=device.type == "cuda")
    return unpack(packed.to(device, non_blocking=True), arrays)


def pack(arrays: Arrays, *, pin_memory: bool) -> torch.Tensor:
    """The arrays' bytes one after the other, each from a multiple of 16: uint8[n]."""
    size = sum(_padded(array.nbytes) for array in arrays.values())
    packed = torch.empty(size, dtype=torch.uint8, pin_memory=pin_memory)
    target = packed.numpy()
    start = 0
    for array in arrays.values():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        target[start : start + flat.nbytes] = flat
        start += _padded(flat.nbytes)
    return packed


def unpack(packed: torch.Tensor, arrays: Arrays) -> dict[str, torch.Tensor]:
    """Views of a packed buffer, of the types and shapes of the arrays that it was made from."""
    tensors = {}
    start = 0
    for name, array in arrays.items():
        part = packed[start : start + array.nbytes]
        tensors[name] = part.view(_TYPES[array.dtype]).view(array.shape)
        start += _padded(array.nbytes)
    return tensors


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
