"""Reads JSON data by pydantic types, and names the first fault by its place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

T = TypeVar("T")
Step = str | int

FieldNames = Callable[[Mapping[str, Any]], Collection[str]]
"""The fields that an object of the data may have."""

_AT = "at"
"""Key of a custom error's context: the steps from the validated value to the fault."""


_UNKNOWN = frozenset({"extra_forbidden", "unexpected_keyword_argument"})


class JsonFault(ValueError):
    """An error in JSON data, with its path.

    Attributes:
        path: the keys and indices from the data's root to the fault.
        reason: what is wrong there.
        is_absent: the last step of ``path`` names something that is missing or unknown.
    """

    def __init__(self, path: tuple[Step, ...], reason: str, *, is_absent: bool = False) -> None:
        super().__init__(reason)
        self.path = path
        self.reason = reason
        self.is_absent = is_absent


def fault_at(reason: str, *path: Step) -> PydanticCustomError:
    """An error for validators to raise; ``path`` leads from the validated value to the fault."""
    return PydanticCustomError("fault", "{reason}", {"reason": reason, _AT: path})


def read_json(adapter: TypeAdapter[T], data: Any, field_names: FieldNames) -> T:
    """Validates JSON data.

    Args:
        field_names: for a suggestion where a name is unknown.

    Raises:
        JsonFault: data of another shape.
    """
    try:
        return adapter.validate_python(data)
    except ValidationError as error:
        faults = error.errors(include_url=False)
        unknown = (fault for fault in faults if fault["type"] in _UNKNOWN)
        raise _fault(next(unknown, faults[0]), data, field_names) from None
    except RecursionError:
        raise JsonFault((), "it nests too deep") from None


def nearest(name: str, known: Collection[str]) -> str:
    """A hint at the name that may have been meant, or nothing."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(value: Any) -> str:
    """A value as errors print it, shortened."""
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


_EXPECTED = {
    "int_type": "expected an integer",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "dataclass_type": "expected an object",
    "too_short": "expected at least {min_length} item",
    "string_too_short": "expected at least {min_length} character",
    "greater_than_equal": "expected at least {ge}",
}
"""What was expected, by pydantic's type of an error, where its own message says it less well."""


def _fault(error: ErrorDetails, data: Any, field_names: FieldNames) -> JsonFault:
    path, owner = _place(error["loc"], data)
    context = error.get("ctx", {})
    name = str(path[-1]) if path else ""
    kind = owner.get("kind") if isinstance(owner, Mapping) else None
    what = f"a {kind}" if isinstance(kind, str) else "it"
    match error["type"]:
        case "missing":
            return JsonFault(path, f"{what} needs {name!r}", is_absent=True)
        case "extra_forbidden" | "unexpected_keyword_argument":
            hint = nearest(name, field_names(owner))
            return JsonFault(path, f"{what} has no field {name!r}{hint}")
        case "union_tag_invalid" | "union_tag_not_found":
            found = error["input"].get("kind") if isinstance(error["input"], Mapping) else None
            expected = context.get("expected_tags")
            reason = f"{found!r} is none of {expected}" if expected else "'kind' is missing"
            return JsonFault((*path, "kind"), reason, is_absent=True)
        case "recursion_loop" | "recursion_depth_exceeded":
            return JsonFault((), "it nests too deep")
        case "fault":
            return JsonFault((*path, *context[_AT]), context["reason"])
    known = _EXPECTED.get(error["type"])
    message = known.format(**context) if known else error["msg"]
    message = message.replace("Input should be", "expected").replace("a valid ", "a ")
    return JsonFault(path, f"{message}, found {shown(error['input'])}")


def _place(location: tuple[Step, ...], data: Any) -> tuple[tuple[Step, ...], Any]:
    """A fault's path without the tags of unions, and the object that its last step is in."""
    path: list[Step] = []
    owner, value, tagged = data, data, None
    for step in location:
        if isinstance(value, list | tuple):
            inner = value[step] if isinstance(step, int) and step < len(value) else None
        else:
            fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
            if step == fields.get("kind") and value is not tagged:
                tagged = value
                continue
            inner = fields.get(step)
        owner, value = value, inner
        path.append(step)
    return tuple(path), owner
