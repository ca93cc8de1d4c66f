"""Converts clients' structural tags to constraints.

Three forms: Ramet's own (``constraint_to_json``); xgrammar's, which vLLM accepts
(``{"type": "structural_tag", "format": {...}}``); and vLLM's older one, of structures and triggers.
https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ramet.grammars.constraints import (
    AnyOf,
    Ebnf,
    FixedText,
    FreeText,
    JsonSchema,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)
from ramet.grammars.constraints.serialize import constraint_from_json
from ramet.grammars.errors import ConstraintError
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.paths import field_path
from ramet.runtime.chat.param_paths import RequestedConstraint

_MAX_DEPTH = 50


def structural_tag(value: Mapping[str, Any] | str, field: str) -> RequestedConstraint:
    """Parses the structural tag in ``field``, an object or its JSON text.

    Raises:
        InvalidConstraintError: it has none of the three forms; ``param`` is the path.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise _wrong(field, f"the structural tag is not valid JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise _wrong(field, "a structural tag must be an object")
    if "kind" in value:
        return RequestedConstraint(_own(value, field), field)
    if value.get("type", "structural_tag") != "structural_tag":
        raise _wrong(f"{field}.type", f"{value['type']!r} is not 'structural_tag'")
    reader = _Reader()
    if "format" in value:
        _check_keys(value, field, ("type", "format"))
        root = reader.part(value["format"], f"{field}.format")
    else:
        _check_keys(value, field, ("type", "structures", "triggers"))
        root = reader.structures(value, field)
    return RequestedConstraint(StructuralTag(root), field, tuple(reader.noted))


def _own(value: Mapping[str, Any], field: str) -> StructuralTag:
    try:
        found = constraint_from_json(value)
    except ConstraintError as error:
        raise _wrong(field_path(field, error.path), error.reason) from None
    if not isinstance(found, StructuralTag):
        raise _wrong(f"{field}.kind", f"a {found.kind} is not a structural tag")
    return found


class _Reader:
    """Parses xgrammar's formats and records each part's path."""

    def __init__(self) -> None:
        self.noted: list[tuple[Part, str]] = []
        self._depth = 0

    def part(self, value: Any, field: str) -> Part:
        """Parses one format."""
        kind = _get(value, field, "type", str)
        read = self._READERS.get(kind)
        if read is None:
            raise _wrong(
                f"{field}.type",
                f"the format {kind!r} is not supported; available: {', '.join(self._READERS)}",
            )
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _wrong(field, "the formats are nested too deeply")
        part = read(self, value, field)
        self._depth -= 1
        self.noted.append((part, field))
        return part

    def structures(self, value: Mapping[str, Any], field: str) -> Part:
        """vLLM's older form."""
        tags = []
        for index, item in enumerate(_get(value, field, "structures", list)):
            place = f"{field}.structures[{index}]"
            _check_keys(item, place, ("begin", "schema", "end"))
            begin, end = _text(item, place, "begin"), _text(item, place, "end")
            tags.append(Tag(begin, self._schema(item.get("schema"), f"{place}.schema"), end))
        return TriggeredTags(tuple(tags), _texts(value, field, "triggers"))

    def _schema(self, schema: Any, field: str, *, any_order: bool = True) -> JsonSchema:
        if not isinstance(schema, Mapping | bool):
            raise _wrong(field, "a schema must be an object, true or false")
        part = JsonSchema(schema, any_order=any_order, integers="plain")
        self.noted.append((part, field))
        return part

    def _fixed(self, value: Any, field: str) -> Part:
        _check_keys(value, field, ("type", "value"))
        return FixedText(_text(value, field, "value"))

    def _free(self, value: Any, field: str) -> Part:
        _check_keys(value, field, ("type", "excludes", "max_tokens"), off={"max_chars": None})
        excluded = _texts(value, field, "excludes", needed=False)
        if value.get("max_tokens") is None:
            return FreeText(excluded)
        return FreeText(excluded, max_tokens=_get(value, field, "max_tokens", int))

    def _json(self, value: Any, field: str) -> Part:
        off: dict[str, Any] = {"style": "json", "max_whitespace_cnt": None, "excludes": []}
        _check_keys(value, field, ("type", "json_schema", "any_order"), off=off)
        any_order = _flag(value, field, "any_order")
        return self._schema(value.get("json_schema"), f"{field}.json_schema", any_order=any_order)

    def _regex(self, value: Any, field: str) -> Part:
        _check_keys(value, field, ("type", "pattern"), off={"excludes": []})
        return Regex(_text(value, field, "pattern"))

    def _grammar(self, value: Any, field: str) -> Part:
        _check_keys(value, field, ("type", "grammar", "syntax"))
        dialects = {"ebnf": "gbnf", "lark": "lark"}
        syntax = value.get("syntax", "ebnf")
        if syntax not in dialects:
            raise _wrong(f"{field}.syntax", f"{syntax!r} is none of ebnf, lark")
        text = _text(value, field, "grammar")
        return Ebnf(text, "lark") if syntax == "lark" else Ebnf(text, "gbnf")

    def _elements(self, value: Any, field: str) -> tuple[Part, ...]:
        _check_keys(value, field, ("type", "elements"))
        items = _get(value, field, "elements", list)
        return tuple(self.part(e, f"{field}.elements[{i}]") for i, e in enumerate(items))

    def _sequence(self, value: Any, field: str) -> Part:
        return Series(self._elements(value, field))

    def _or(self, value: Any, field: str) -> Part:
        return AnyOf(self._elements(value, field))

    def _tag(self, value: Any, field: str) -> Part:
        tags = self._tags(value, field)
        return tags[0] if len(tags) == 1 else AnyOf(tuple(tags))

    def _tags(self, value: Any, field: str) -> list[Tag]:
        """Parses a tag; one with several possible ends becomes several tags."""
        if _get(value, field, "type", str) != "tag":
            raise _wrong(f"{field}.type", "expected a tag")
        _check_keys(value, field, ("type", "begin", "content", "end"))
        begin, ends = _text(value, field, "begin"), value.get("end")
        found = (ends,) if isinstance(ends, str) else _texts(value, field, "end")
        if not found:
            raise _wrong(f"{field}.end", "a tag needs an end")
        content = self.part(value.get("content"), f"{field}.content")
        if isinstance(content, FreeText):
            content = replace(content, excluded=(*content.excluded, *filter(None, found)))
        return [Tag(begin, content, end) for end in found]

    def _all_tags(self, value: Any, field: str) -> tuple[Tag, ...]:
        items = enumerate(_get(value, field, "tags", list))
        return tuple(tag for i, t in items for tag in self._tags(t, f"{field}.tags[{i}]"))

    def _triggered(self, value: Any, field: str) -> Part:
        known = ("type", "triggers", "tags", "at_least_one", "stop_after_first", "excludes")
        _check_keys(value, field, known)
        tags = self._all_tags(value, field)
        triggers = _texts(value, field, "triggers")
        excluded = _texts(value, field, "excludes", needed=False)
        minimum = int(_flag(value, field, "at_least_one"))
        if not _flag(value, field, "stop_after_first"):
            return TriggeredTags(tags, triggers, minimum, None, excluded)
        before = FreeText((*triggers, *excluded))
        first = Series((before, AnyOf(tags)))
        return first if minimum else AnyOf((before, first))

    def _separated(self, value: Any, field: str) -> Part:
        known = ("type", "tags", "separator", "at_least_one", "stop_after_first")
        _check_keys(value, field, known)
        one = AnyOf(self._all_tags(value, field))
        separator = FixedText(_text(value, field, "separator"))
        most = 0 if _flag(value, field, "stop_after_first") else None
        some = Series((one, Repeated(Series((separator, one)), 0, most)))
        return some if _flag(value, field, "at_least_one") else Repeated(some, 0, 1)

    def _repeated(self, value: Any, field: str) -> Part:
        bounds = {"optional": (0, 1), "plus": (1, None), "star": (0, None)}.get(value["type"])
        if bounds is None:
            _check_keys(value, field, ("type", "content", "min", "max"))
            low, high = _get(value, field, "min", int), _get(value, field, "max", int)
            bounds = (low, None if high == -1 else high)
        else:
            _check_keys(value, field, ("type", "content"))
        return Repeated(self.part(value.get("content"), f"{field}.content"), *bounds)

    _READERS: ClassVar[dict[str, Callable[[_Reader, Any, str], Part]]] = {
        "const_string": _fixed,
        "any_text": _free,
        "json_schema": _json,
        "regex": _regex,
        "grammar": _grammar,
        "sequence": _sequence,
        "or": _or,
        "tag": _tag,
        "triggered_tags": _triggered,
        "tags_with_separator": _separated,
        **dict.fromkeys(("optional", "plus", "star", "repeat"), _repeated),
    }


def _check_keys(
    value: Any, field: str, known: Collection[str], *, off: Mapping[str, Any] | None = None
) -> None:
    """Refuses unknown keys; ``off`` keys are allowed with the value that turns them off."""
    if not isinstance(value, Mapping):
        raise _wrong(field, "expected an object")
    off = off or {}
    for name, item in value.items():
        if name not in known and (name not in off or item != off[name]):
            raise _wrong(f"{field}.{name}", f"{name!r} is not supported here")


def _get(value: Any, field: str, name: str, kind: type) -> Any:
    found = value.get(name) if isinstance(value, Mapping) else None
    if not isinstance(found, kind) or isinstance(found, bool):
        raise _wrong(f"{field}.{name}", f"expected {_KINDS[kind]}")
    return found


_KINDS = {str: "a text", int: "a whole number", list: "a list"}


def _text(value: Any, field: str, name: str) -> str:
    return str(_get(value, field, name, str))


def _texts(value: Any, field: str, name: str, *, needed: bool = True) -> tuple[str, ...]:
    found = value.get(name, None if needed else [])
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise _wrong(f"{field}.{name}", "expected a list of texts")
    return tuple(found)


def _flag(value: Any, field: str, name: str) -> bool:
    found = value.get(name, False)
    if not isinstance(found, bool):
        raise _wrong(f"{field}.{name}", "expected true or false")
    return found


def _wrong(field: str, reason: str) -> InvalidConstraintError:
    return InvalidConstraintError(f"{field}: {reason}", param=field)
