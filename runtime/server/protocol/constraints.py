"""How each API says what an output must match, turned into one ``Constraint``."""

from __future__ import annotations

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
    StructuralTag,
    Tag,
    TriggeredTags,
    Whitespace,
)
from ramet.runtime.errors import InvalidConstraintError, InvalidParameterError
from ramet.runtime.server.protocol.base import ApiModel


def answer_schema(schema: dict[str, Any] | bool) -> JsonSchema:
    """A schema for a whole answer. Its keys come in the schema's order and without white space,
    so that they are forced by the grammar and cost no steps."""
    return JsonSchema(schema, whitespace="none", any_order=False)


class NamedSchema(ApiModel):
    """OpenAI's ``json_schema`` object. A schema is enforced exactly, strict or not."""

    name: str
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    description: str | None = None
    strict: bool | None = None


class TagStructure(ApiModel):
    """One structure of a structural tag: JSON that is valid for ``schema`` between two texts."""

    begin: str = Field(min_length=1)
    schema_: dict[str, Any] | bool = Field(alias="schema")
    end: str = Field(min_length=1)


class ResponseFormat(ApiModel):
    """OpenAI's ``response_format`` of chat and, as in vLLM, of completions.

    ``structural_tag`` is vLLM's: free text in which every trigger begins one of the structures.
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: NamedSchema | None = None
    structures: list[TagStructure] | None = None
    triggers: list[str] | None = None

    def constraint(self) -> Constraint | None:
        """The constraint; None for free text."""
        if self.type == "structural_tag":
            return self._structural_tag()
        if self.structures is not None or self.triggers is not None:
            raise InvalidParameterError(
                "structures and triggers belong to the type structural_tag",
                param="response_format",
            )
        if self.type == "json_schema":
            if self.json_schema is None or self.json_schema.schema_ is None:
                raise InvalidParameterError(
                    "response_format of type json_schema needs json_schema.schema",
                    param="response_format.json_schema",
                )
            return answer_schema(self.json_schema.schema_)
        if self.json_schema is not None:
            raise InvalidParameterError(
                f"response_format has a json_schema, but its type is {self.type!r}",
                param="response_format",
            )
        return JsonObject() if self.type == "json_object" else None

    def _structural_tag(self) -> Constraint:
        if not self.structures or not self.triggers or self.json_schema is not None:
            raise InvalidParameterError(
                "response_format of type structural_tag needs structures and triggers",
                param="response_format",
            )
        tags = tuple(
            Tag(each.begin, JsonSchema(each.schema_), each.end) for each in self.structures
        )
        return StructuralTag(TriggeredTags(tags, tuple(self.triggers)))


class StructuredOutputs(ApiModel):
    """vLLM's ``structured_outputs``: exactly one of the constraint fields."""

    json_: dict[str, Any] | str | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False

    UNSUPPORTED: ClassVar = {
        "disable_fallback": (True, False),  # there is no fallback
        "disable_additional_properties": (False,),
        "whitespace_pattern": (),
        "structural_tag": (),
    }

    def constraint(self) -> Constraint:
        whitespace: Whitespace = "none" if self.disable_any_whitespace else "compact"
        given: list[Constraint] = []
        if self.json_ is not None:
            given.append(JsonSchema(_schema(self.json_), whitespace=whitespace))
        if self.regex is not None:
            given.append(Regex(self.regex))
        if self.choice is not None:
            given.append(_choice(self.choice, "structured_outputs.choice"))
        if self.grammar is not None:
            given.append(Ebnf(self.grammar))
        if self.json_object:
            given.append(JsonObject(whitespace=whitespace))
        return _only_one(given, "structured_outputs")


class ConstraintFields(ApiModel):
    """The constraint fields of chat and completions."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None

    def constraint(self) -> Constraint | None:
        """The one constraint that the body asks for, or None."""
        given: list[Constraint] = []
        if self.response_format and (wanted := self.response_format.constraint()):
            given.append(wanted)
        if self.structured_outputs is not None:
            given.append(self.structured_outputs.constraint())
        if self.guided_json is not None:
            given.append(JsonSchema(_schema(self.guided_json)))
        if self.guided_regex is not None:
            given.append(Regex(self.guided_regex))
        if self.guided_choice is not None:
            given.append(_choice(self.guided_choice, "guided_choice"))
        if self.guided_grammar is not None:
            given.append(Ebnf(self.guided_grammar))
        return _only_one(given, "response_format") if given else None


def _schema(value: dict[str, Any] | str | bool) -> Any:
    """A schema, which vLLM's clients may also send as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise InvalidConstraintError(f"the schema is not valid JSON: {error}") from None


def _choice(choices: list[str], param: str) -> Choice:
    if not choices:
        raise InvalidConstraintError("a choice needs at least one string", param=param)
    return Choice(tuple(choices))


def _only_one(given: list[Constraint], param: str) -> Constraint:
    if len(given) != 1:
        kinds = ", ".join(constraint.kind for constraint in given) or "none"
        raise InvalidConstraintError(f"give exactly one constraint, not {kinds}", param=param)
    return given[0]
