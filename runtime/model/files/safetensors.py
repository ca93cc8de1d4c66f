"""Reads safetensors files: a JSON header with each tensor's type, shape and place, then bytes."""

from __future__ import annotations

import hashlib
import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.gguf import map_file
from ramet.runtime.model.files.tensor import GgufTensor

_ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1, "I32": 4, "I64": 8}
"""Types of tensors; those after the first three occur in quantised models alone."""
_MAX_HEADER_BYTES = 100 << 20


def read_safetensors(path: Path) -> tuple[dict[str, GgufTensor], str, mmap.mmap]:
    """(the file's tensors under their own names, a hash of its header and size, the mapped file).

    Raises ``ModelLoadError`` for a damaged file, ``UnsupportedModelError`` for a tensor type that
    Ramet doesn't read.
    """
    buffer = map_file(path)
    header_len = int.from_bytes(buffer[:8], "little")
    if len(buffer) < 8 or header_len > min(_MAX_HEADER_BYTES, len(buffer) - 8):
        raise ModelLoadError(f"{path}: not a safetensors file, or cut short")
    header = buffer[8 : 8 + header_len]
    try:
        entries = json.loads(header)
        described = {name: each for name, each in entries.items() if name != "__metadata__"}
        tensors = {
            name: _tensor(path, buffer, 8 + header_len, name, each)
            for name, each in described.items()
        }
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError) as error:
        raise ModelLoadError(f"{path}: a damaged safetensors header ({error!r})") from None
    digest = hashlib.blake2b(header + len(buffer).to_bytes(8, "little"), digest_size=16)
    return tensors, digest.hexdigest(), buffer


def _tensor(
    path: Path, buffer: mmap.mmap, data_start: int, name: str, entry: dict[str, Any]
) -> GgufTensor:
    kind = str(entry["dtype"])
    if kind not in _ITEM_BYTES:
        raise UnsupportedModelError(
            f"{path}: tensor {name!r} is stored as {kind}; Ramet reads {', '.join(_ITEM_BYTES)} "
            "from safetensors"
        )
    shape = tuple(int(size) for size in entry["shape"]) or (1,)
    begin, end = (int(offset) for offset in entry["data_offsets"])
    num_bytes = _ITEM_BYTES[kind] * int(np.prod(shape, dtype=object))
    if min(shape) < 1 or begin < 0 or end - begin != num_bytes:
        raise ModelLoadError(f"{path}: the tensor {name!r} contradicts its own size")
    if data_start + end > len(buffer):
        raise ModelLoadError(f"{path}: cut short inside the tensor {name!r}; fetch it again")
    data = np.frombuffer(buffer, np.uint8, num_bytes, data_start + begin)
    return GgufTensor(name, kind, shape, data.reshape(-1, shape[-1] * _ITEM_BYTES[kind]))
