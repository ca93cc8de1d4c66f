"""Type checks of callers' values; InvalidParameterError names the parameter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError

_INT = frozenset({int})


def whole(name: str, value: Any) -> int:
    """An integer, numpy's included; booleans are refused."""
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidParameterError(f"{name} must be an integer, not {value!r}", param=name)
    return int(value)


def only_ints(values: Iterable[Any]) -> bool:
    """Whether all values are exactly of type ``int``; fast for long lists."""
    return set(map(type, values)) <= _INT


def number(name: str, value: Any) -> float:
    """A number, numpy's included; booleans are refused."""
    if type(value) in (int, float):
        return value  # type: ignore[no-any-return]
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidParameterError(f"{name} must be a number, not {value!r}", param=name)
    return float(value)


def flag(name: str, value: Any) -> bool:
    """A boolean, and nothing that is only truthy."""
    if not isinstance(value, bool):
        raise InvalidParameterError(f"{name} must be true or false, not {value!r}", param=name)
    return value


def text(name: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise InvalidParameterError(f"{name} must be a string, not {value!r}", param=name)
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    """Strings; a single string is a list of one."""
    if isinstance(value, str):
        return (value,)
    return tuple(text(name, item) for item in _items(name, value, "strings"))


def token_ids(name: str, value: Any) -> tuple[int, ...]:
    """Token ids."""
    items = tuple(_items(name, value, "token ids"))
    return items if only_ints(items) else tuple(whole(name, item) for item in items)


def biases(name: str, value: Any) -> Mapping[int, float]:
    """Numbers by token id."""
    if not isinstance(value, Mapping):
        raise InvalidParameterError(f"{name} must map token ids to numbers", param=name)
    return {whole(name, key): number(name, bias) for key, bias in value.items()}


def _items(name: str, value: Any, what: str) -> Iterable[Any]:
    if isinstance(value, str | bytes | bytearray | Mapping) or not isinstance(value, Iterable):
        raise InvalidParameterError(f"{name} must be a list of {what}, not {value!r}", param=name)
    return value
