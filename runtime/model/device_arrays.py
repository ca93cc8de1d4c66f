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


def upload(arrays: Mapping[str, npt.NDArray[Any]], device: torch.device) -> dict[str, torch.Tensor]:
    """The arrays as tensors on ``device``; uint64 becomes int64 of the same bits.

    On a GPU they are views of one buffer that one asynchronous copy fills; on the CPU they share
    the arrays' memory where they can.
    """
    if device.type == "cpu":
        return {
            name: torch.from_numpy(np.ascontiguousarray(array)).view(_TYPES[array.dtype])
            for name, array in arrays.items()
        }
    starts: dict[str, int] = {}
    size = 0
    for name, array in arrays.items():
        starts[name] = size
        size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
    staged = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    buffer = staged.numpy()
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer[starts[name] : starts[name] + flat.nbytes] = flat
    moved = staged.to(device, non_blocking=True)
    return {
        name: moved[starts[name] : starts[name] + array.nbytes]
        .view(_TYPES[array.dtype])
        .view(array.shape)
        for name, array in arrays.items()
    }
