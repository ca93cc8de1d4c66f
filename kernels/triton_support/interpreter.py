"""Triton's interpreter with a GPU's bfloat16, and without its repeated patching; for tests.

The interpreter keeps bfloat16 as uint16: it multiplies matrices of these bits as integers, and
truncates float32 to them. A GPU multiplies the values, and rounds to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray


@contextmanager
def corrected_interpreter() -> Iterator[None]:
    """Corrects the interpreter until the context ends.

    Raises TypeError from a kernel that calculates with bfloat16 without converting it first, which
    the interpreter can't do.
    """
    import triton.language as tl
    from triton.language import core
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    convert, dot, binary = interpreter._convert_float, builder.create_dot, builder.binary_op
    patch_all = interpreter._patch_builtin
    some_builtin: dict[Any, str | None] = {}

    def convert_float(data: Any, source: Any, target: Any, rounding_mode: Any) -> Any:
        pair = (source.scalar, target.scalar)
        if pair == (tl.bfloat16, tl.float32):
            return bfloat16_values(data)
        if pair == (tl.float32, tl.bfloat16):
            return round_to_bfloat16(data)
        return convert(data, source, target, rounding_mode)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *options: Any) -> Any:
        a, b = (
            interpreter.TensorHandle(bfloat16_values(each.data), tl.float32)
            if each.dtype.scalar == tl.bfloat16
            else each
            for each in (a, b)
        )
        return dot(self, a, b, d, *options)

    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if tl.bfloat16 in (lhs.dtype.scalar, rhs.dtype.scalar):
            raise TypeError("the interpreter can't calculate with bfloat16: convert to float32")
        return binary(self, lhs, rhs, op)

    def patch_unless_patched(package: Any, *arguments: Any) -> None:
        # Done at each call of a function within a kernel, though the launch has done it already.
        if package not in some_builtin:
            names = [name for name in dir(package) if core.is_builtin(getattr(package, name))]
            some_builtin[package] = names[0] if names else None
        name = some_builtin[package]
        if name is not None and core.is_builtin(getattr(package, name)):
            patch_all(package, *arguments)

    with ExitStack() as stack:
        for owner, name, value in (
            (interpreter, "_convert_float", convert_float),
            (interpreter, "_patch_builtin", patch_unless_patched),
            (builder, "create_dot", create_dot),
            (builder, "binary_op", binary_op),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def bfloat16_values(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The float32 values of bfloat16 numbers."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_to_bfloat16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of float32 values rounded to bfloat16, to nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).reshape(values.shape).astype(np.uint16)
