"""Converts the constraint fields of each API to a constraint and its field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import orjson
from pydantic import Field

from ramet.grammars.constraints import (
    Choice,
    Constraint,
    Ebnf,
    JsonObject,
    JsonSchema,
    Regex,
    Whitespace,
)
from ramet.grammars.constraints.writing import answer_schema
from ramet.runtime.api.errors import InvalidConstraintError, InvalidParameterError
from ramet.runtime.chat.param_paths import RequestedConstraint
from ramet.runtime.server.protocol.base import ApiModel
from ramet.runtime.server.protocol.structural_tags import structural_tag


class NamedSchema(ApiModel):
    """OpenAI's ``json_schema`` object. A schema is enforced exactly, strict or not."""

    name: str
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None


class ResponseFormat(ApiModel):
    """OpenAI's ``response_format`` of chat and, as in vLLM, of completions.

    ``structural_tag`` is vLLM's: see ``protocol.structural_tags``. A ``schema`` next to the type is
    llama.cpp's and others' way to write OpenAI's ``json_schema.schema``.
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: NamedSchema | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    format: dict[str, Any] | None = None
    structures: list[dict[str, Any]] | None = None
    triggers: list[str] | None = None

    def requested_constraint(self, field: str) -> RequestedConstraint | None:
        """The constraint of this object, the value of ``field``; None: free text."""
        parts = {name: getattr(self, name) for name in ("format", "structures", "triggers")}
        given = {name: value for name, value in parts.items() if value is not None}
        if self.type == "structural_tag":
            if self.json_schema is not None:
                given["json_schema"] = self.json_schema
            return structural_tag({"type": self.type, **given}, field)
        for name in given:
            raise InvalidParameterError(
                f"{field}.{name} belongs to the type structural_tag", param=f"{field}.{name}"
            )
        if self.json_schema is not None and self.type != "json_schema":
            raise InvalidParameterError(
                f"{field} has a json_schema, but its type is {self.type!r}", param=field
            )
        if self.schema_ is not None:
            return self._requested_schema(self.schema_, f"{field}.schema")
        if self.type == "json_schema":
            if self.json_schema is None or self.json_schema.schema_ is None:
                raise InvalidParameterError(
                    f"{field} of type json_schema needs json_schema.schema",
                    param=f"{field}.json_schema",
                )
            return RequestedConstraint(
                answer_schema(self.json_schema.schema_), f"{field}.json_schema.schema"
            )
        return RequestedConstraint(JsonObject(), field) if self.type == "json_object" else None

    def _requested_schema(self, schema: dict[str, Any] | bool, field: str) -> RequestedConstraint:
        """The constraint of a schema that stands next to the type."""
        if self.type not in ("json_object", "json_schema") or self.json_schema is not None:
            other = "json_schema" if self.json_schema is not None else f"type {self.type!r}"
            raise InvalidParameterError(f"{field} can't be combined with {other}", param=field)
        return RequestedConstraint(answer_schema(schema), field)


class StructuredOutputs(ApiModel):
    """vLLM's ``structured_outputs``: exactly one of the constraint fields."""

    json_: dict[str, Any] | str | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: dict[str, Any] | str | None = None
    disable_any_whitespace: bool = False

    UNSUPPORTED: ClassVar = {
        "disable_fallback": (True, False),  # there is no fallback
        "disable_additional_properties": (False,),
        "whitespace_pattern": (),
    }

    def requested_constraint(self, field: str) -> RequestedConstraint:
        """The constraint of this object, the value of ``field``."""
        whitespace: Whitespace = "none" if self.disable_any_whitespace else "compact"
        given: list[RequestedConstraint] = []
        if self.json_ is not None:
            place = f"{field}.json"
            schema = _schema(self.json_, place)
            given.append(RequestedConstraint(answer_schema(schema), place))
        if self.regex is not None:
            given.append(RequestedConstraint(Regex(self.regex), f"{field}.regex"))
        if self.choice is not None:
            given.append(_choice(self.choice, f"{field}.choice"))
        if self.grammar is not None:
            given.append(RequestedConstraint(Ebnf(self.grammar), f"{field}.grammar"))
        if self.json_object:
            given.append(
                RequestedConstraint(JsonObject(whitespace=whitespace), f"{field}.json_object")
            )
        if self.structural_tag is not None:
            given.append(structural_tag(self.structural_tag, f"{field}.structural_tag"))
        return _only_one(given, field)


class ConstraintFields(ApiModel):
    """The constraint fields of chat and completions: OpenAI's, vLLM's and SGLang's."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    regex: str | None = None
    ebnf: str | None = None
    json_schema: dict[str, Any] | str | bool | None = None

    def requested_constraint(self) -> RequestedConstraint | None:
        """The constraint that the body requests; None if there is none."""
        given: list[RequestedConstraint] = []
        if self.response_format and (
            wanted := self.response_format.requested_constraint("response_format")
        ):
            given.append(wanted)
        if self.structured_outputs is not None:
            given.append(self.structured_outputs.requested_constraint("structured_outputs"))
        given += self._given(("guided_json", "json_schema"), _schema_constraint)
        given += self._given(("guided_regex", "regex"), lambda pattern, _: Regex(pattern))
        if self.guided_choice is not None:
            given.append(_choice(self.guided_choice, "guided_choice"))
        given += self._given(("guided_grammar", "ebnf"), lambda grammar, _: Ebnf(grammar))
        return _only_one(given, "response_format") if given else None

    def _given(
        self, names: tuple[str, ...], constraint_of: Callable[[Any, str], Constraint]
    ) -> Iterator[RequestedConstraint]:
        """The constraints of those of some fields that were sent."""
        for name in names:
            if (value := getattr(self, name)) is not None:
                yield RequestedConstraint(constraint_of(value, name), name)


def _schema_constraint(value: dict[str, Any] | str | bool, field: str) -> JsonSchema:
    return answer_schema(_schema(value, field))


def _schema(value: dict[str, Any] | str | bool, field: str) -> Any:
    """Parses a schema that is JSON text, as vLLM's clients may send it."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidConstraintError(
            f"{field}: the schema is not valid JSON: {error}", param=field
        ) from None


def _choice(choices: list[str], field: str) -> RequestedConstraint:
    if not choices:
        raise InvalidConstraintError("a choice needs at least one string", param=field)
    return RequestedConstraint(Choice(tuple(choices)), field)


def _only_one(given: list[RequestedConstraint], field: str) -> RequestedConstraint:
    """The one constraint of ``field``; an error names the first field that is too many."""
    if len(given) != 1:
        kinds = ", ".join(requested.field for requested in given) or "none"
        wrong = given[1].field if given else field
        raise InvalidConstraintError(f"give exactly one constraint, not {kinds}", param=wrong)
    return given[0]
