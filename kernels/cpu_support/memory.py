# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Raw memory, atomics and calls by address, for compiled functions.

Addresses are int64. ``load_*`` and ``store_*`` take an address and an index in elements.
"""

from __future__ import annotations

import platform
import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.features import is_x86
from ramet.kernels.cpu_support.ir import F32, I8, I16, I32, I64, i64


def _loader(element: Any, size: int, result: Any) -> Any:
    @intrinsic
    def load(typingctx, address, index):  # type: ignore[no-untyped-def]
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            value = vec.load(b, vec.offset(b, args[0], args[1], size), element)
            return b.sext(value, I64) if element in (I8, I16, I32) else value

        return result(types.int64, types.int64), codegen

    return load


def _storer(element: Any, size: int, kind: Any) -> Any:
    @intrinsic
    def store(typingctx, address, index, value):  # type: ignore[no-untyped-def]
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            value = args[2]
            if element in (I8, I16, I32):
                value = b.trunc(value, element)
            vec.store(b, value, vec.offset(b, args[0], args[1], size))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, kind), codegen

    return store


load_i64 = _loader(I64, 8, types.int64)
load_i32 = _loader(I32, 4, types.int64)
load_i8 = _loader(I8, 1, types.int64)
load_f32 = _loader(F32, 4, types.float32)
store_i64 = _storer(I64, 8, types.int64)
store_i32 = _storer(I32, 4, types.int64)
store_f32 = _storer(F32, 4, types.float32)


@intrinsic
def load_f16(typingctx, address, index):  # type: ignore[no-untyped-def]
    """A float16 as float32."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        return vec.load_f16(b, vec.offset(b, args[0], args[1], 2), 1)

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def load_bf16(typingctx, address, index):  # type: ignore[no-untyped-def]
    """A bfloat16 as float32."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        bits = b.zext(vec.load(b, vec.offset(b, args[0], args[1], 2), I16), I32)
        return b.bitcast(b.shl(bits, vec.i32(16)), F32)

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def bits_to_f32(typingctx, bits):  # type: ignore[no-untyped-def]
    """float64 bits, as an operand carries them, to float32."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        return b.fptrunc(b.bitcast(args[0], vec.F64), F32)

    return types.float32(types.int64), codegen


@intrinsic
def next_task(typingctx, counter):  # type: ignore[no-untyped-def]
    """Takes the next number from a counter that threads share: 0, 1, 2, ..."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        return b.atomic_rmw("add", vec.pointer(b, args[0], I64), i64(1), "monotonic")

    return types.int64(types.int64), codegen


@intrinsic
def call_op(typingctx, address, stage, step, counter, thread):  # type: ignore[no-untyped-def]
    """Calls an ``Op`` by its address."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(ir.VoidType(), [I64] * 4)
        b.call(b.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*([types.int64] * 5)), codegen


@intrinsic
def load_acquire(typingctx, address):  # type: ignore[no-untyped-def]
    """An int64 that other threads change; what they wrote before changing it is seen after."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        return b.load_atomic(vec.pointer(b, args[0], I64), "seq_cst", 8)

    return types.int64(types.int64), codegen


@intrinsic
def store_release(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Changes an int64 for the other threads, after everything that was written before."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        b.store_atomic(args[1], vec.pointer(b, args[0], I64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def exchange_if(typingctx, address, expected, value):  # type: ignore[no-untyped-def]
    """Replaces an int64 by ``value`` if it is ``expected``; returns whether it was."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        target = vec.pointer(b, args[0], I64)
        pair = b.cmpxchg(target, args[1], args[2], "seq_cst", "seq_cst")
        return b.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), codegen


@intrinsic
def pause(typingctx):  # type: ignore[no-untyped-def]
    """The core's hint for a spin loop (``pause``, ``yield``), where it has one."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        if is_x86():
            vec.call(b, "llvm.x86.sse2.pause", ir.VoidType(), [])
        return context.get_dummy_value()

    return types.void(), codegen


_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_WAIT, _WAKE = 128, 129  # of this process alone
HAS_FUTEX = _FUTEX is not None
"""Whether ``sleep_while`` sleeps until it is woken."""


@intrinsic
def sleep_while(typingctx, address, value, timeout):  # type: ignore[no-untyped-def]
    """Sleeps while the low 32 bits of an int64 are those of ``value``, until ``wake_all`` of the
    address, or for the seconds and nanoseconds at ``timeout``, if it isn't 0; may end early (Linux
    ``futex``). Elsewhere lets another thread have the core (POSIX ``sched_yield``)."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        if _FUTEX is None:
            vec.call(b, "sched_yield", I32, [])
        else:
            address, value, timeout = args
            value = b.zext(b.trunc(value, I32), I64)
            words = [i64(_FUTEX), address, i64(_WAIT), value, timeout]
            vec.call(b, "syscall", I64, words)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 3)), codegen


@intrinsic
def wake_all(typingctx, address):  # type: ignore[no-untyped-def]
    """Wakes all threads in ``sleep_while`` of this address."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        if _FUTEX is not None:
            words = [i64(_FUTEX), args[0], i64(_WAKE), i64(2**31 - 1)]
            vec.call(b, "syscall", I64, words)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def add_in_order(typingctx, address, value):  # type: ignore[no-untyped-def]
    """Adds to an int64 that threads share; all threads see such changes in one order."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        b.atomic_rmw("add", vec.pointer(b, args[0], I64), args[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def read_byte(typingctx, descriptor, buffer):  # type: ignore[no-untyped-def]
    """POSIX ``read`` of one byte into ``buffer``; the number of bytes read, or -1."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        target = vec.pointer(b, args[1], I8)
        return vec.call(b, "read", I64, [b.trunc(args[0], I32), target, i64(1)])

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def write_byte(typingctx, descriptor, buffer):  # type: ignore[no-untyped-def]
    """POSIX ``write`` of one byte from ``buffer``."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        source = vec.pointer(b, args[1], I8)
        return vec.call(b, "write", I64, [b.trunc(args[0], I32), source, i64(1)])

    return types.int64(types.int64, types.int64), codegen
