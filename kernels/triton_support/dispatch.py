"""Where an operation runs, and with which tile sizes: the one place that looks at the device.

Tensors on a GPU take the Triton kernel; tensors on a CPU take the torch reference, except in
Triton's interpreter (``TRITON_INTERPRET=1`` in the environment before this package is imported),
where every kernel can be stepped through without a GPU.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

import torch

from ramet.kernels.triton_support.triton_language import HAS_TRITON, triton

Config = dict[str, int]
"""Constants of a kernel by name (``BLOCK_...``), and ``num_warps`` and ``num_stages``."""


def uses_triton(tensor: torch.Tensor) -> bool:
    """Whether an operation on this tensor runs its Triton kernel."""
    return tensor.is_cuda or (HAS_TRITON and interpreting())


def interpreting() -> bool:
    """Whether kernels run in Triton's interpreter."""
    return HAS_TRITON and bool(triton.knobs.runtime.interpret)


@functools.cache
def architecture(device: torch.device) -> str:
    """The device's instruction set, such as ``sm_90`` or ``gfx942``; ``cpu`` without a GPU."""
    if device.type != "cuda":
        return "cpu"
    if torch.version.hip is not None:
        return str(torch.cuda.get_device_properties(device).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability(device)
    return f"sm_{major}{minor}"


@functools.cache
def data(name: str) -> Any:
    """A table of ``ramet/kernels/data``, by device."""
    return json.loads((resources.files("ramet.kernels") / "data" / name).read_text())


def nearest(table: dict[str, Any], arch: str) -> Any:
    """The entry for ``arch``; or for the newest older one of its family; or ``default``."""
    if arch in table:
        return table[arch]
    if arch.startswith("sm_"):
        number = int(arch[3:])
        older = [int(name[3:]) for name in table if name.startswith("sm_")]
        # Parts between two data-centre generations (sm_86, sm_89) have less shared memory than
        # either, so only what comes after a listed generation falls back to it.
        if older and number > max(older):
            return table[f"sm_{max(older)}"]
    return table["default"]


def kernel_config(kernel: str, variant: str, arch: str) -> Config:
    """The constants of a kernel's variant on an architecture, from ``data/tuning.json``."""
    return dict(nearest(data("tuning.json")[kernel][variant], arch))


def next_power_of_2(number: int) -> int:
    """The least power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()
