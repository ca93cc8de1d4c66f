"""Operations of a model's program: functions of four addresses, compiled and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import types
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typing import signature

from ramet.jit.disk import DiskCache
from ramet.jit.sources import digest

_SIGNATURE = signature(types.void, types.int64, types.int64, types.int64, types.int64)


class Op:
    """An operation of a program, ``function(stage, step, counter, thread)``: four int64.

    ``stage`` is the address of the operation's record, ``step`` that of the step's, ``counter``
    that of an int64 that hands out tasks, ``thread`` the number of the calling thread. ``name``
    must be unique.
    """

    def __init__(self, name: str, function: Callable[[int, int, int, int], None]) -> None:
        function.__name__ = function.__qualname__ = name
        self.name = name
        self._function: Any = function
        self._compiled: Any = None
        self._cache = DiskCache(f"ramet.{name}", lambda: digest(self._function))

    @property
    def address(self) -> int:
        """The address of the machine code; compiles or loads it at first."""
        if self._compiled is None:
            self.load()
        return int(self._compiled.address)

    @property
    def is_compiled(self) -> bool:
        """Whether the machine code is on disk."""
        return self._cache.has(_SIGNATURE)

    @property
    def is_busy(self) -> bool:
        """Whether another process is compiling it."""
        return self._cache.is_busy(_SIGNATURE)

    def load(self) -> None:
        """Loads or compiles the machine code."""
        options = {"nopython": True, "nogil": True, "boundscheck": False}
        with global_compiler_lock:
            if self._compiled is not None:
                return
            pair = (_SIGNATURE.args, _SIGNATURE.return_type)
            compiled: Any = CFunc(self._function, pair, locals={}, options=options)
            compiled._cache = self._cache
            with self._cache.alone(_SIGNATURE):
                compiled.compile()
            self._compiled = compiled


def op(function: Callable[[int, int, int, int], None]) -> Op:
    """Makes an ``Op`` of a module's function, under the function's name."""
    return Op(function.__name__, function)
