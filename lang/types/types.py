"""Output types: a Python type's constraint, and the parser of its text."""

from __future__ import annotations

import enum
import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import NoneType
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import ValidationError

from ramet.grammars.constraints import Choice, Constraint, JsonObject, JsonSchema, Regex
from ramet.lang.base.errors import OutputParseError, OutputTypeError
from ramet.lang.types.labels import type_label
from ramet.lang.types.schemas import adapter_of

T = TypeVar("T")

INTEGER = Regex(r"-?(0|[1-9][0-9]{0,17})")
NUMBER = Regex(r"-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?([eE][-+]?[0-9]{1,2})?")


_SHOWN_FAULTS = 3
"""Faults of one output that an error lists."""


@dataclass(frozen=True)
class OutputType(Generic[T]):
    """The constraint of an output, and the parser of its text.

    Attributes:
        label: the type's name, for people.
        constraint: None for free text.
        parse: raises OutputParseError for a text that is no such value.
        option: the argument of ``gen`` that asked for it, for errors.
        parse_cut: parses a text that was cut off; None: an OutputTruncatedError.
    """

    label: str
    constraint: Constraint | None
    parse: Callable[[str], T]
    option: str = ""
    parse_cut: Callable[[str], T] | None = None


def _same(text: str) -> str:
    return text


TEXT: OutputType[str] = OutputType("str", None, _same)


def text_matching(constraint: Constraint) -> OutputType[str]:
    """Text that a constraint allows, kept as text."""
    return OutputType("str", constraint, _same)


def output_type(annotation: Any) -> OutputType[Any]:
    """The output type of a Python type.

    ``str`` is free text; ``int``, ``float``, ``bool``, enums and Literals are written bare;
    all other types that pydantic supports (models, dataclasses, TypedDicts, lists, unions,
    Annotated) are written as JSON, its fields in their order and no others.

    Raises:
        OutputTypeError: no constraint can stand for the type.
    """
    label = type_label(annotation)
    if annotation is str:
        return TEXT
    if annotation is bool:
        return _one_of(label, [("True", True), ("False", False)])
    if annotation is int:
        return OutputType(label, INTEGER, _converter(int, INTEGER, label))
    if annotation is float:
        return OutputType(label, NUMBER, _converter(float, NUMBER, label))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _one_of(label, [(str(member.value), member) for member in annotation])
    if get_origin(annotation) is Literal:
        return _one_of(label, [(str(value), value) for value in get_args(annotation)])
    if annotation is None or annotation is NoneType:
        raise OutputTypeError("None is not something that a model can write")
    if isinstance(annotation, dict):
        raise OutputTypeError("a JSON schema is not a type: give it as json(...) or json_schema=")
    if inspect.isroutine(annotation):
        raise OutputTypeError(f"{label} is a function, not a type")
    return _json(annotation, label)


def described_output(constraint: Constraint | None, label: str) -> OutputType[Any]:
    """The output type of a node that is known by its constraint and its type's name alone.

    Numbers and truth values are themselves; what was held to JSON is the JSON value, unless its
    type is ``str``; everything else is text.
    """
    if isinstance(constraint, JsonSchema | JsonObject) and label != "str":
        return OutputType(label, constraint, lambda text: _parsed(text, label))
    for annotation in (int, float, bool):
        known = output_type(annotation)
        if (known.label, known.constraint) == (label, constraint):
            return known
    return TEXT if constraint is None else text_matching(constraint)


def _parsed(text: str, label: str) -> Any:
    try:
        return json.loads(text, parse_float=_finite)
    except ValueError as error:
        raise OutputParseError(text, label, str(error)) from error


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is more than a float can hold")
    return number


def _one_of(label: str, pairs: list[tuple[str, Any]]) -> OutputType[Any]:
    values = dict(pairs)
    if not values or "" in values:
        raise OutputTypeError(f"{label} has no values, or one whose text is empty")
    if len(values) < len(pairs):
        raise OutputTypeError(f"{label} has two values that are written the same")

    def parse(text: str) -> Any:
        try:
            return values[text]
        except KeyError:
            raise OutputParseError(text, label, f"{text!r} is none of its values") from None

    return OutputType(label, Choice(tuple(values)), parse)


def _converter(convert: Callable[[str], T], form: Regex, label: str) -> Callable[[str], T]:
    def parse(text: str) -> T:
        if re.fullmatch(form.pattern, text, re.ASCII) is None:
            raise OutputParseError(text, label, f"{text[:40]!r} is not written as one")
        return convert(text)

    return parse


def _json(annotation: Any, label: str) -> OutputType[Any]:
    adapter, schema = adapter_of(annotation, label)

    def parse(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            raise OutputParseError(text, label, _faults(error)) from error

    return OutputType(label, JsonSchema(schema, any_order=False, integers="plain"), parse)


def _faults(error: ValidationError) -> str:
    """The errors in a value, each with its path."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [
        ": ".join(filter(None, ("".join(map(_step, fault["loc"])).lstrip("."), fault["msg"])))
        for fault in faults[:_SHOWN_FAULTS]
    ]
    more = len(faults) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more else "")


def _step(step: int | str) -> str:
    return f"[{step}]" if isinstance(step, int) else f".{step}"
