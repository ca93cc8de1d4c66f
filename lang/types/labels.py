"""Readable names of Python types: ``list[str] of 3 to 4 items of at most 40 characters``."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_SIZED = (list, set, frozenset, tuple)


def type_label(annotation: Any) -> str:
    """A type's name, with the bounds that its annotations set."""
    details = _details(annotation)
    name = _name(annotation)
    if details:
        return f"{name} {details}"
    # A bare ``str`` stands for free text: see ``described_output``.
    return f"Annotated[{name}]" if get_origin(annotation) is Annotated else name


def _name(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name(arguments[0])
    if annotation is NoneType or annotation is None:
        return "None"
    if annotation is Ellipsis:
        return "..."
    if origin in (Union, UnionType):
        return " | ".join(_name(argument) for argument in arguments)
    if origin is Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if origin is not None and inspect.isclass(origin):
        return f"{origin.__name__}[{', '.join(_name(argument) for argument in arguments)}]"
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


def _details(annotation: Any) -> str:
    bounds: dict[str, Any] = {}
    while get_origin(annotation) is Annotated:
        annotation, *metadata = get_args(annotation)
        bounds |= _bounds(metadata)
    origin = get_origin(annotation) or annotation
    words: list[str] = []
    unit = "characters" if origin is str else "bytes" if origin is bytes else "items"
    length = _range(bounds.get("min_length"), bounds.get("max_length"))
    items = _details(get_args(annotation)[0]) if origin in _SIZED and get_args(annotation) else ""
    if length:
        words.append(f"of {length} {unit}")
    elif items:
        words.append("of items")
    words += [items] if items else []
    for name, word in (("ge", "from"), ("gt", "above"), ("le", "to"), ("lt", "below")):
        if bounds.get(name) is not None:
            words.append(f"{word} {bounds[name]}")
    if bounds.get("multiple_of") is not None:
        words.append(f"in multiples of {bounds['multiple_of']}")
    if bounds.get("pattern") is not None:
        words.append(f"matching {getattr(bounds['pattern'], 'pattern', bounds['pattern'])!r}")
    return " ".join(words)


def _range(low: int | None, high: int | None) -> str:
    if not low:
        return "" if high is None else f"at most {high}"
    if high is None:
        return f"at least {low}"
    return str(low) if low == high else f"{low} to {high}"


def _bounds(metadata: Iterable[Any]) -> dict[str, Any]:
    names = ("min_length", "max_length", "ge", "gt", "le", "lt", "multiple_of", "pattern")
    return {
        name: value
        for item in _flat(metadata)
        for name in names
        if (value := getattr(item, name, None)) is not None
    }


def _flat(metadata: Iterable[Any]) -> Iterator[Any]:
    for item in metadata:
        yield item
        yield from getattr(item, "metadata", ())  # of pydantic's Field(...)
