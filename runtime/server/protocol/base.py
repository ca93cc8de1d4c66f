"""The base of all request bodies: no field is accepted and silently ignored.

A body's field is one of five kinds: a field of the model, which is honoured; one of
``NO_EFFECT``, which can't change any answer; one of ``WARNED``, which can't change what this
server's models answer and is named in the answer's warnings; one of ``UNSUPPORTED``, which would
change the answer and is refused unless its value means "off"; or unknown, which is refused with
the closest valid name, unless the server is configured to warn. Null is the same as a missing
field, as in the OpenAI API.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from ramet.runtime.api.errors import InvalidParameterError, InvalidRequestError
from ramet.runtime.chat.field_warnings import FieldWarnings

UNKNOWN = "unknown_parameter"
UNSUPPORTED = "unsupported_parameter"
THREAD_UNSUPPORTED = "thread_unsupported_request"
MISSING = "missing_field"

OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "cache_prompt": (),
    "grammar": ("guided_grammar",),
    "n_predict": ("max_tokens", "max_output_tokens"),
    "repeat_penalty": ("repetition_penalty",),
    **dict.fromkeys(
        ("max_gen_len", "max_length", "max_new_tokens", "max_tokens", "max_completion_tokens",
         "num_predict"),
        ("max_output_tokens", "max_tokens"),
    ),
}  # fmt: skip
"""Fields of other servers and APIs, each with what has its meaning here, if anything has."""

_SIMILARITY = 0.7
"""Names below this ratio of difflib's are other words, not misspellings."""


def _integral(value: Any) -> Any:
    """Converts integral floats, as JSON has one number type; the strict check does the rest."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Int = Annotated[int, BeforeValidator(_integral)]
"""A JSON number without a fractional part."""


def _unlimited_is_absent(value: Any) -> Any:
    return None if value == -1 and not isinstance(value, bool) else value


MINUS_ONE_IS_ABSENT = BeforeValidator(_unlimited_is_absent)
"""Takes a limit of -1 as none, as llama.cpp's server does."""

TokenLimit = Annotated[Int | None, MINUS_ONE_IS_ABSENT]
"""A limit on output tokens."""


class ApiModel(BaseModel):
    """A JSON object of a request. Types are strict: ``"5"`` and ``true`` aren't numbers."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        defer_build=True,  # until the first such body arrives
    )

    NO_EFFECT: ClassVar[frozenset[str]] = frozenset()
    """Fields that can't change the answer; listed in the documentation."""

    UNSUPPORTED: ClassVar[Mapping[str, tuple[Any, ...]]] = {}
    """Fields of the API that are refused by name, each with the values that mean "off"."""

    WARNED: ClassVar[Mapping[str, str]] = {}
    """Fields of the API that have no effect here, each with the reason. A value that means "off"
    by ``UNSUPPORTED`` needs no warning."""

    PATH: ClassVar[str] = ""
    """Where the object stands in a body, such as ``reasoning``, for warnings."""

    _by_key: ClassVar[dict[str, FieldInfo]]

    @model_validator(mode="before")
    @classmethod
    def _screen(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, dict):
            return data
        warnings = warnings_of(info)
        fields = cls._fields_by_key()
        kept = {}
        for name, value in data.items():
            if name in fields:
                if value is not None or fields[name].is_required():
                    kept[name] = value
            elif name in cls.NO_EFFECT:
                continue
            elif name in cls.UNSUPPORTED or name in cls.WARNED:
                if value is None or value in cls.UNSUPPORTED.get(name, ()):
                    continue
                if name not in cls.WARNED:
                    raise PydanticCustomError(
                        UNSUPPORTED, "{name} is not supported by this server", {"name": name}
                    )
                warnings.add(cls._path_of(name), cls.WARNED[name])
            elif warnings.unknown_fields == "warn":
                warnings.add(cls._path_of(name), "this server doesn't know it")
            else:
                raise PydanticCustomError(
                    UNKNOWN,
                    "unknown parameter {name}{hint}",
                    {"name": name, "hint": cls._near(name)},
                )
        return kept

    @classmethod
    def _fields_by_key(cls) -> dict[str, FieldInfo]:
        """The fields by their keys in JSON."""
        if "_by_key" not in cls.__dict__:
            cls._by_key = {field.alias or name: field for name, field in cls.model_fields.items()}
        return cls._by_key

    @classmethod
    def _path_of(cls, name: str) -> str:
        return f"{cls.PATH}.{name}" if cls.PATH else name

    @classmethod
    def _near(cls, name: str) -> str:
        """A hint at a field that is taken: another server's word for it, or a similar name."""
        fields = cls._fields_by_key()
        close = [other for other in OTHER_NAMES.get(name, ()) if other in fields]
        if name not in OTHER_NAMES:
            known = [*fields, *cls.NO_EFFECT]
            close = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILARITY)
        return f"; did you mean {close[0]}?" if close else ""


def warnings_of(info: ValidationInfo) -> FieldWarnings:
    """The warnings of the call whose body is validated; a list of its own outside a call."""
    return info.context if isinstance(info.context, FieldWarnings) else FieldWarnings()


def join_path(parts: tuple[int | str, ...]) -> str:
    """``("messages", 0, "content")`` as ``messages[0].content``.

    Parts that pydantic adds for the arms of a union (``str``, ``list[...]``) are left out.
    """
    path = ""
    for part in parts:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part.isidentifier() and part not in _UNION_ARMS and not part[0].isupper():
            path += f".{part}" if path else part
    return path


_UNION_ARMS = frozenset({"str", "int", "float", "bool", "none", "dict", "list"})


def invalid_body(error: ValidationError) -> InvalidRequestError:
    """Converts the first error of a body to one that names the field."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    path = join_path(first["loc"])
    if kind in (UNKNOWN, UNSUPPORTED):
        param = f"{path}.{context['name']}" if path else str(context["name"])
        where = f" (in {path})" if path else ""
        return InvalidParameterError(first["msg"] + where, param=param, code=kind)
    if kind == "json_invalid":
        return InvalidRequestError(
            f"the body is not valid JSON: {context.get('error', first['msg'])}", code="invalid_json"
        )
    if kind in ("missing", MISSING):
        if kind == MISSING:
            path = f"{path}.{context['name']}" if path else str(context["name"])
        return InvalidParameterError(
            f"{path} is required", param=path or None, code="missing_required_parameter"
        )
    if not path:
        return InvalidRequestError(f"the body is invalid: {first['msg']}", code="invalid_body")
    return InvalidParameterError(f"{path}: {first['msg']}", param=path)
