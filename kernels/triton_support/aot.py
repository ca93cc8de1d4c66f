"""Compiles a Triton kernel ahead of time for a GPU target, and reports its resource use.

A kernel that doesn't compile, spills registers or wants more shared memory than the device has is
found on a machine without a GPU. NVIDIA's ``cuobjdump`` comes with Triton.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

SHARED_MEMORY_LIMITS: Mapping[str, int] = {
    "sm_80": 163 * 1024,
    "sm_86": 99 * 1024,
    "sm_89": 99 * 1024,
    "sm_90": 227 * 1024,
    "sm_100": 227 * 1024,
    "sm_120": 99 * 1024,
    "gfx942": 64 * 1024,
}
"""Most shared memory of one thread block, in bytes, by architecture (CUDA C++ Programming Guide,
table of compute capabilities; AMD CDNA3 ISA: 64 KiB of LDS)."""

_NUM_OPTIONS = ("num_warps", "num_stages")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a compiled kernel takes: registers a thread, bytes spilled or on the stack a thread,
    bytes of shared memory a block; and its asynchronous copies to shared memory (0 on AMD)."""

    registers: int
    spilled_bytes: int
    shared_bytes: int
    num_async_copies: int


def compile_ahead(
    kernel: Any, arch: str, signature: Mapping[str, str], constants: Mapping[str, Any]
) -> Resources:
    """Compiles ``kernel`` for ``arch``.

    Args:
        signature: Triton's type of each argument that isn't a constant, such as ``*fp16`` or
            ``i32``. Pointers and strides count as divisible by 16 unless the kernel says not to
            specialise on them, as is so where it is launched (without that, loads are scalar).
        constants: the kernel's constants, ``num_warps`` and ``num_stages``.
    """
    options = {name: constants[name] for name in _NUM_OPTIONS if name in constants}
    names = kernel.arg_names
    types = {name: signature.get(name, "constexpr") for name in names}
    constexprs = {name: constants[name] for name in names if name not in signature}
    unspecialized = {
        param.name
        for param in kernel.params
        if param.do_not_specialize or param.do_not_specialize_on_alignment
    }
    divisible = {
        (index,): [["tt.divisibility", 16]]
        for index, name in enumerate(names)
        if name not in unspecialized
        and (types[name].startswith("*") or (types[name] == "i32" and "stride" in name))
    }
    source = ASTSource(fn=kernel, signature=types, constexprs=constexprs, attrs=divisible)
    return used_resources(triton.compile(source, target=gpu_target(arch), options=options))


def used_resources(compiled: Any) -> Resources:
    """The resources of a kernel that Triton has compiled."""
    if "cubin" in compiled.asm:
        registers, spilled = _nvidia_usage(compiled.asm["cubin"])
    else:
        registers, spilled = _amd_usage(compiled.asm["amdgcn"])
    num_copies = compiled.asm.get("ptx", "").count("cp.async.c")
    return Resources(registers, spilled, int(compiled.metadata.shared), num_copies)


def gpu_target(arch: str) -> GPUTarget:
    """Triton's name of an architecture."""
    if arch.startswith("gfx"):
        return GPUTarget("hip", arch, 64)
    return GPUTarget("cuda", int(arch.removeprefix("sm_")), 32)


def _nvidia_usage(cubin: bytes) -> tuple[int, int]:
    """Registers and stack bytes. Triton's kernels have no arrays, so all stack is spills."""
    import triton.backends.nvidia as backend

    assert backend.__file__ is not None
    tool = Path(backend.__file__).parent / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    usage = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if usage is None:
        raise RuntimeError(f"cuobjdump reported no resource usage: {text!r}")
    return int(usage[1]), int(usage[2])


def _amd_usage(assembly: str) -> tuple[int, int]:
    def value(name: str) -> int:
        found = re.search(rf"\.{name}:\s+(\d+)", assembly)
        if found is None:
            raise RuntimeError(f"the compiled kernel's metadata has no .{name}")
        return int(found[1])

    spilled = value("vgpr_spill_count") * 4 + value("private_segment_fixed_size")
    return value("vgpr_count"), spilled
