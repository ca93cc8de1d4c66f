"""Detects the CPU's features, and chooses the integer dot product of the kernels."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from typing import Literal

import llvmlite.binding as llvm
from numba.core import config

DotPath = Literal[
    "amx-int8", "avx512-vnni", "avx-vnni", "avx2", "neon-dot", "portable", "amx-emulated"
]
"""How int8 products are summed: Intel's tiles where 8 rows or more meet the weights, 512-bit or
256-bit ``vpdpbusd``, ``vpmaddubsw``/``vpmaddwd``, ``sdot``, or plain vector arithmetic that LLVM
lowers to what the target has (NEON, SSE). ``amx-emulated`` is for tests of tiles on any CPU."""

DOT_PATHS: tuple[DotPath, ...] = (
    "amx-int8",
    "avx512-vnni",
    "avx-vnni",
    "avx2",
    "neon-dot",
    "portable",
)
"""Fastest first."""

AttentionPath = Literal["bf16", "float32"]
"""How attention multiplies: in pairs of bfloat16, summed in float32 (``vdpbf16ps``), or all in
float32. Keys and values are bfloat16 either way."""

_AVX512_VNNI = frozenset({"avx512f", "avx512bw", "avx512vl", "avx512vnni"})

_NEEDED: dict[DotPath, frozenset[str]] = {
    "amx-int8": _AVX512_VNNI | {"amx-tile", "amx-int8"},
    "avx512-vnni": _AVX512_VNNI,
    "avx-vnni": frozenset({"avx2", "avxvnni"}),
    "avx2": frozenset({"avx2"}),
    "neon-dot": frozenset({"dotprod"}),
    "portable": frozenset(),
}


@cache
def host_features() -> frozenset[str]:
    """LLVM's names of the features that the CPU and the operating system offer, or of those that
    numba compiles for (``NUMBA_CPU_FEATURES``)."""
    if config.CPU_FEATURES is not None:
        chosen = str(config.CPU_FEATURES).split(",")
        return frozenset(name[1:] for name in chosen if name.startswith("+"))
    try:
        return frozenset(name for name, has in llvm.get_host_cpu_features().items() if has)
    except RuntimeError:  # LLVM can't tell on this platform
        return frozenset()


def host_name() -> str:
    """LLVM's name of the CPU, such as ``znver4``."""
    return str(llvm.get_host_cpu_name())


def has_fma() -> bool:
    """Whether fused multiply-add is one instruction; without it a call a lane would be needed."""
    return "fma" in host_features() or not is_x86()


def num_vector_registers() -> int:
    """How many 16-float vectors fit the register file, which decides the size of register tiles."""
    if "avx512f" in host_features():
        return 32
    return 8


def supported_dot_paths() -> tuple[DotPath, ...]:
    """The paths that run on this machine, fastest first."""
    return tuple(
        path
        for path in DOT_PATHS
        if _NEEDED[path] <= host_features() and (path != "amx-int8" or grants_tiles())
    )


@cache
def grants_tiles() -> bool:
    """Asks the kernel for this process's use of tile data, and returns whether it is granted: the
    CPU may have tiles where the kernel or a hypervisor withholds them.

    Linux's ``arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)``; it holds for all threads.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    syscall = ctypes.CDLL(None).syscall
    return bool(syscall(arch_prctl, request_permission, tile_data) == 0)


def tiles_of(path: DotPath | None) -> Literal["amx", "emulated"] | None:
    """Which tiles a path has, if any."""
    if path == "amx-int8":
        return "amx"
    return "emulated" if path == "amx-emulated" else None


def vector_path(path: DotPath | None) -> DotPath | None:
    """The path by which a path multiplies few rows."""
    if path == "amx-emulated":
        return next(each for each in supported_dot_paths() if each != "amx-int8")
    return "avx512-vnni" if path == "amx-int8" else path


def pairs_middles(path: DotPath | None) -> bool:
    """Whether formats with middles are multiplied by this path on this machine."""
    return vector_path(path) == "avx512-vnni" and multiplies_bf16()


def best_dot_path() -> DotPath:
    """The fastest path of this machine, or the one that ``RAMET_CPU_DOT_PATH`` names.

    Raises ``ValueError`` if the variable names none that this machine supports.
    """
    wanted = os.environ.get("RAMET_CPU_DOT_PATH")
    return supported_dot_paths()[0] if wanted is None else _supported("RAMET_CPU_DOT_PATH", wanted)


def chosen_dot_path(name: str) -> DotPath:
    """The path of that name; ``auto``: ``best_dot_path()``.

    Raises ``ValueError`` if this machine supports none of that name.
    """
    return best_dot_path() if name == "auto" else _supported("cpu_path", name)


def _supported(setting: str, name: str) -> DotPath:
    supported = supported_dot_paths()
    for path in supported:
        if path == name:
            return path
    raise ValueError(f"{setting} is {name!r}; this machine supports {', '.join(supported)}")


def multiplies_bf16() -> bool:
    """Whether one instruction multiplies and adds 32 pairs of bfloat16."""
    return {"avx512f", "avx512bf16"} <= host_features()


def best_attention_path() -> AttentionPath:
    """The faster path of this machine."""
    return "bf16" if multiplies_bf16() else "float32"


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe() -> dict[str, str]:
    """Facts for ``ramet info``."""
    best = best_dot_path()
    return {
        "cpu": host_name(),
        "cores": str(usable_cores()),
        "int8 dot product": best,
        "or by --cpu-path": ", ".join(path for path in supported_dot_paths() if path != best),
        "attention": best_attention_path(),
        "vector width": "512 bit" if "avx512f" in host_features() else "chosen by LLVM",
    }


def is_x86() -> bool:
    """Whether this is an Intel or AMD processor."""
    return str(llvm.get_process_triple()).startswith(("x86_64", "i686", "i386"))
