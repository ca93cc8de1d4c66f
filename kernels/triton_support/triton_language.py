"""Triton where it is installed; elsewhere only the torch references of these kernels can run."""

from __future__ import annotations

from typing import Any

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
except ImportError:  # not a Linux machine
    HAS_TRITON = False
    tl: Any = None  # type: ignore[no-redef]

    class triton:  # type: ignore[no-redef]
        """Lets kernels be defined, and refuses to launch them."""

        @staticmethod
        def jit(kernel: Any = None, **_options: Any) -> Any:
            return triton.jit if kernel is None else _NoKernel()

    class _NoKernel:
        def __getitem__(self, _grid: Any) -> Any:
            raise RuntimeError("Triton is not installed: it is needed to run on a GPU")


__all__ = ["HAS_TRITON", "tl", "triton"]
