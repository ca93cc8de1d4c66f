"""Suggestions where a name is unknown."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from ramet.runtime.api.errors import InvalidParameterError

P = ParamSpec("P")
T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` with the known name that is most like ``name``, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class UnknownArgumentError(InvalidParameterError, TypeError):
    """An argument that a function doesn't take."""

    def __str__(self) -> str:
        return self.message


def unknown_argument(function: str, name: str, known: Iterable[str]) -> UnknownArgumentError:
    """The error for an argument that a function doesn't take."""
    return UnknownArgumentError(
        f"{function}() takes no argument {name!r}{nearest(name, known)}", param=name
    )


def suggests_names(function: Callable[P, T]) -> Callable[P, T]:
    """Makes a call with an unknown argument name the right one.

    Raises:
        UnknownArgumentError: from calls of the function that this returns.
    """
    names = list(inspect.signature(function).parameters)
    known = names[1:] if names[:1] == ["self"] else names

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs:
            if name not in known:
                owner = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
                raise unknown_argument(owner, name, known)
        return function(*args, **kwargs)

    return checked


C = TypeVar("C", bound=type)


def suggests_fields(cls: C) -> C:
    """``suggests_names`` for a class's constructor."""
    cls.__init__ = suggests_names(cls.__init__)  # type: ignore[misc]
    return cls
