"""A digest of the sources that a function's machine code depends on.

Compiled code takes in the functions that it calls and the constants that it names. So the digest
goes over the function's code, and over all that it refers to by name, through functions of this
project, to plain values. Values of other packages count by name: file names contain their versions
(``disk.py``).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core.dispatcher import Dispatcher
from numba.core.types import Type
from numba.extending import _Intrinsic

_OURS = __name__.partition(".")[0]
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range)


def digest(function: FunctionType, *also: object) -> bytes:
    """A digest that identifies a function's sources, to name its compiled code.

    Args:
        also: further values to include, such as compilation options.

    Raises TypeError for a reference to a value that has no digest.
    """
    sources = _Sources(function.__module__)
    sources.add(function)
    sources.add(also)
    return sources.hash.digest()


class _Sources:
    """The running hash of one function's sources.

    ``module`` is the function's own, which counts as part of this project, wherever it is.
    """

    def __init__(self, module: str) -> None:
        self.hash = hashlib.sha256()
        self._module = module
        self._seen: dict[int, int] = {}
        self._kept: list[object] = []

    def add(self, value: object) -> None:
        self._note(type(value).__name__)
        if type(value) in _PLAIN:  # most are
            self._note(repr(value))
            return
        match value:
            case Dispatcher():
                self.add(sorted(map(str, value.targetoptions.items())))
                self.add(value.py_func)
            case _Intrinsic():
                self.add(value._defn)
            case enum.Enum():
                self._note(str(value))
            case np.generic() | np.ndarray():
                self._note(f"{value.dtype} {value.shape}")
                self.hash.update(value.tobytes())
            case Type() | ir.Type() | ir.Constant():
                self._note(str(value))
            case CodeType():
                self._add_code(value)
            case FunctionType() | type() | ModuleType() if not self._is_ours(value):
                self._note(f"{getattr(value, '__module__', '')} {value.__name__}")
            case BuiltinFunctionType() | np.ufunc():
                self._note(f"{getattr(value, '__module__', '')} {value.__name__}")
            case ModuleType():  # what is named of it is added where it is named
                self._note(value.__name__)
            case _ if isinstance(value, (*_PLAIN, np.dtype)):
                self._note(repr(value))
            case _:
                self._add_once(value)

    def _add_once(self, value: object) -> None:
        """Adds a value that may refer to others, perhaps in a circle."""
        number = self._seen.get(id(value))
        if number is not None:
            self._note(str(number))
            return
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)  # so that no other object gets its id
        match value:
            case FunctionType():
                self._add_function(value)
            case type():
                self._note(value.__qualname__)
                self.add({k: v for k, v in vars(value).items() if isinstance(v, FunctionType)})
            case tuple() | list():
                self._note(str(len(value)))
                for item in value:
                    self.add(item)
            case set() | frozenset():
                self.add(sorted(map(repr, value)))
            case dict():
                self._note(str(len(value)))
                for key, item in value.items():
                    self.add(key)
                    self.add(item)
            case functools.partial():
                self.add((value.func, value.args, value.keywords))
            case _ if dataclasses.is_dataclass(value):
                self.add([getattr(value, field.name) for field in dataclasses.fields(value)])
            case _ if callable(getattr(value, "__wrapped__", None)):  # a cached function
                self.add(value.__wrapped__)  # type: ignore[attr-defined]
            case _:
                raise TypeError(
                    f"compiled code refers to {value!r}: a {type(value).__name__} has no digest"
                )

    def _add_function(self, function: FunctionType) -> None:
        self._note(function.__qualname__)
        self._add_code(function.__code__)
        self.add(function.__defaults__)
        self.add(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            self.add(cell.cell_contents)
        for name in _names(function.__code__):
            if name in function.__globals__:
                value = function.__globals__[name]
                self._note(name)
                self.add(value)
                if isinstance(value, ModuleType) and self._is_ours(value):
                    self._add_named(value, function.__code__)

    def _add_named(self, module: ModuleType, code: CodeType) -> None:
        """Adds a module's attributes whose names occur in code that refers to the module."""
        for name in _names(code):
            if name in vars(module):
                self._note(name)
                self.add(vars(module)[name])

    def _add_code(self, code: CodeType) -> None:
        self.hash.update(code.co_code)
        self._note(f"{code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}")
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self._note(" ".join(names))
        for constant in code.co_consts:
            self.add(constant)

    def _is_ours(self, value: Any) -> bool:
        name = value.__name__ if isinstance(value, ModuleType) else str(value.__module__)
        return name.partition(".")[0] == _OURS or name == self._module

    def _note(self, text: str) -> None:
        data = text.encode()
        self.hash.update(len(data).to_bytes(4, "little") + data)


def _names(code: CodeType) -> list[str]:
    """The global names and attributes in code and in the functions inside it."""
    names = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(dict.fromkeys(_names(constant)))
    return list(names)
