"""Functions that are compiled when they are first needed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

from numba.core import sigutils, typeinfer
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.typing import signature

from ramet.jit.disk import DiskCache
from ramet.jit.sources import digest

_running: list[object] = []


def is_compiling() -> bool:
    """Whether a thread of this process compiles a function, or waits for another's compiling."""
    return bool(_running)


class Function(CPUDispatcher):  # type: ignore[misc]
    """A compiled function, kept on disk.

    Args:
        signatures: the argument types that it is compiled for ahead of need.
        is_open: whether other types are accepted, too, and compiled for at their first call.
        options: numba's.
    """

    def __init__(
        self,
        function: Any,
        signatures: tuple[Any, ...],
        options: dict[str, Any],
        *,
        is_open: bool = False,
    ) -> None:
        super().__init__(py_func=function, targetoptions={"nopython": True, **options})
        self._signatures = signatures
        self._is_open = is_open
        self._is_loaded = False
        self._cache = DiskCache(
            f"{function.__module__}.{function.__qualname__}",
            lambda: digest(function, str(signatures), sorted(map(str, options.items()))),
        )

    @property
    def is_compiled(self) -> bool:
        """Whether the machine code for all of its signatures is on disk."""
        return all(self._cache.has(each) for each in self._parsed_signatures)

    @property
    def is_busy(self) -> bool:
        """Whether another process is compiling it."""
        return any(self._cache.is_busy(each) for each in self._parsed_signatures)

    def load(self) -> None:
        """Loads or compiles the function for its signatures."""
        with global_compiler_lock:
            if self._is_loaded:
                return
            self._is_loaded = True  # a function that calls itself asks again
            try:
                with typeinfer.register_dispatcher(self):
                    for each in self._parsed_signatures:
                        self.compile(each)
            except BaseException:
                self._is_loaded = False
                raise
            if not self._is_open:
                self.disable_compile()

    def compile(self, sig: Any) -> Any:
        _running.append(self)
        try:
            with global_compiler_lock, self._cache.alone(sig):
                return super().compile(sig)
        finally:
            _running.remove(self)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        if not self._is_open:
            self.load()
        return super().get_call_template(args, kws)

    @cached_property
    def _parsed_signatures(self) -> list[Any]:
        pairs = map(sigutils.normalize_signature, self._signatures)
        return [args if result is None else signature(result, *args) for args, result in pairs]

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Called by numba when no compiled signature matches; numba calls the result."""
        if self._is_open:
            return super()._compile_for_args(*args, **kws)
        self.load()
        return self

    def __reduce__(self) -> Any:
        """Pickles as a reference by name: compiled code refers to the functions that it calls."""
        return _named, (self.py_func.__module__, self.py_func.__qualname__)


def jit(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes a ``Function`` of these signatures; ``options`` are numba's."""
    return lambda function: Function(function, signatures, {"nogil": True, **options})


def open_jit(*signatures: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes a ``Function`` of these likely signatures that accepts other types, too."""
    return lambda function: Function(function, signatures, {"nogil": True, **options}, is_open=True)


def _named(module: str, qualified_name: str) -> Any:
    value: Any = import_module(module)
    for name in qualified_name.split("."):
        value = getattr(value, name)
    return value
