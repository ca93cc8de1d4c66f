"""What a chat's output may be, as one constraint: reasoning, then tool calls or an answer.

Built from the formats' own texts, so that what is enforced is what the parsers read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ramet.grammars import Vocabulary, compile_constraint
from ramet.grammars.constraints import (
    AnyOf,
    Constraint,
    FixedText,
    FreeText,
    JsonSchema,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
)
from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.runtime.errors import InvalidConstraintError
from ramet.runtime.server.conversation import ToolChoice
from ramet.runtime.streams import ReasoningFormat, ToolFormat

Schemas = Mapping[str, Mapping[str, Any]]
"""Each tool's parameters' schema, by the tool's name."""

_SPACE = Regex(r"\s{0,4}")
_STRING_WORDS = frozenset({"type", "title", "description", "default", "examples"})


def chat_constraint(
    answer: Constraint | None,
    reasoning: ReasoningFormat | None,
    *,
    is_reasoning_open: bool,
    calls: Part | None,
    must_call: bool,
) -> Constraint | None:
    """What the whole output must match; None: anything.

    Args:
        answer: what the text of an answer without calls must match.
        reasoning: the tags of the reasoning that may come first; inside them all is free.
        is_reasoning_open: the prompt has opened the reasoning.
        calls: what calls look like, with the free text around them where that is allowed.
        must_call: an answer without calls is not allowed.
    """
    if calls is None and answer is None:
        return None
    options: list[Part] = [] if calls is None else [calls]
    if answer is not None and not must_call:
        options.append(answer.root if isinstance(answer, StructuralTag) else answer)
    rest = options[0] if len(options) == 1 else AnyOf(tuple(options))
    if reasoning is None:
        if calls is None:
            return answer
        return StructuralTag(rest)
    thought: tuple[Part, ...] = (
        FreeText(excluded=(reasoning.end,)),
        FixedText(reasoning.end),
        _SPACE,
        rest,
    )
    if not is_reasoning_open:
        thought = (FixedText(reasoning.begin), *thought)
    behind = Series(thought)
    return StructuralTag(behind if is_reasoning_open else AnyOf((behind, rest)))


def tool_calls(
    tool_format: ToolFormat,
    schemas: Schemas,
    choice: ToolChoice,
    *,
    parallel: bool,
    has_answer: bool,
) -> Part:
    """The calls that ``choice`` allows.

    Where a call must be made, the output is calls and nothing else. In auto mode there may be
    text before, and where ``parallel``, between and behind them; whatever begins like a call is
    one, with arguments that are valid for its tool. With ``has_answer`` there is no such text,
    for the answer has its own constraint.
    """
    if isinstance(choice, tuple):
        return _some_calls(tool_format, {choice[1]: schemas[choice[1]]}, at_most=1)
    at_most = None if parallel else 1
    if choice == "required" or has_answer:
        return _some_calls(tool_format, schemas, at_most=at_most)
    free = FreeText(excluded=_triggers(tool_format))
    some = _some_calls(tool_format, schemas, at_most=at_most)
    if not parallel:
        return AnyOf((free, Series((free, some))))
    return Series((free, Repeated(Series((some, free)))))


def _triggers(tool_format: ToolFormat) -> tuple[str, ...]:
    """The texts that only a call may begin with."""
    if not tool_format.is_bare:
        return (tool_format.begin,)
    return (tool_format.begin, tool_format.opening("").removeprefix(tool_format.begin)[:-2])


def _some_calls(tool_format: ToolFormat, schemas: Schemas, *, at_most: int | None) -> Part:
    """One or more calls, as the format puts several into a row."""
    more = None if at_most is None else at_most - 1
    begin, end = tool_format.begin, tool_format.end
    match tool_format.style:
        case "json_list":
            call = _any_call(tool_format, schemas, begin + "[", "]" + end)
            rest = Repeated(Series((FixedText(", "), call)), maximum=more)
            return Series((FixedText(begin + "["), call, rest, FixedText("]" + end)))
        case "json" if not end:
            call = _any_call(tool_format, schemas, begin, "")
            head = (
                AnyOf((FixedText(begin), FixedText("")))
                if tool_format.is_bare
                else FixedText(begin)
            )
            rest = Repeated(Series((FixedText(tool_format.separator), call)), maximum=more)
            return Series((head, call, rest))
        case "xml":
            one: Part = AnyOf(tuple(_xml_call(tool_format, *tool) for tool in schemas.items()))
        case _:
            one = _any_call(tool_format, schemas, "", "")
    return Series((one, Repeated(Series((FixedText("\n"), one)), maximum=more)))


def _any_call(tool_format: ToolFormat, schemas: Schemas, head: str, tail: str) -> Part:
    """One call with JSON arguments, without ``head`` and ``tail``, which enclose several."""
    closing = tool_format.closing
    end = FixedText(closing[: len(closing) - len(tail)])
    calls = []
    for name, schema in schemas.items():
        opening = FixedText(tool_format.opening(name).removeprefix(head))
        calls.append(Series((opening, JsonSchema(schema), end)))
    return AnyOf(tuple(calls))


def _xml_call(tool_format: ToolFormat, name: str, schema: Mapping[str, Any]) -> Part:
    """One call with a tag a parameter, in the schema's order."""
    required = set(schema.get("required", ()))
    parts: list[Part] = [FixedText(f"{tool_format.begin}\n<function={name}>\n")]
    for key, value in schema.get("properties", {}).items():
        parameter = Series(
            (
                FixedText(f"<parameter={key}>\n"),
                _xml_value(schema, key, value),
                FixedText("\n</parameter>\n"),
            )
        )
        parts.append(parameter if key in required else Repeated(parameter, maximum=1))
    parts.append(FixedText(f"</function>\n{tool_format.end}"))
    return Series(tuple(parts))


def _xml_value(schema: Mapping[str, Any], key: str, value: Any) -> Part:
    """Strings stand for themselves, all else is JSON."""
    if not isinstance(value, Mapping) or value.get("type") != "string":
        shared = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
        return JsonSchema({**shared, **value} if isinstance(value, Mapping) else value)
    if "enum" in value:
        return AnyOf(tuple(FixedText(str(option)) for option in value["enum"]))
    if "const" in value:
        return FixedText(str(value["const"]))
    if unknown := sorted(set(value) - _STRING_WORDS):
        raise InvalidConstraintError(
            f"{unknown[0]!r} of the string parameter {key!r} can't be enforced in the XML style "
            "in which this model calls tools",
            param="tools",
        )
    return FreeText(excluded=("</parameter>",))


def arguments_schema(parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """A tool's parameters as the schema of an object; without any, of the empty one.

    Objects whose schema lists properties and says nothing of others are written without others:
    functions seldom take arguments that they don't name, and the arguments stay valid.
    """
    if parameters is None:
        return {"type": "object", "additionalProperties": False}
    kind = parameters.get("type", "object")
    if kind != "object":
        raise InvalidConstraintError(
            f"a tool's parameters are an object, not {json.dumps(kind)}", param="tools"
        )
    closed: dict[str, Any] = _without_others({**parameters, "type": "object"})
    return closed


_SAY_OF_OTHERS = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "patternProperties"),
        *("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"),
    }
)


def _without_others(schema: Any) -> Any:
    """Closes plain object schemas, down through properties, items and definitions."""
    if not isinstance(schema, Mapping):
        return schema
    closed = dict(schema)
    for key in ("properties", "$defs", "definitions"):
        if isinstance(closed.get(key), Mapping):
            closed[key] = {name: _without_others(value) for name, value in closed[key].items()}
    if "items" in closed:
        closed["items"] = _without_others(closed["items"])
    if "properties" in closed and not _SAY_OF_OTHERS & closed.keys():
        closed["additionalProperties"] = False
    return closed


def tool_schemas(tools: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Each tool's arguments' schema, by its name; a name may be used once."""
    schemas: dict[str, dict[str, Any]] = {}
    for tool in tools:
        function = tool["function"]
        if function["name"] in schemas:
            raise InvalidConstraintError(
                f"there are two tools with the name {function['name']!r}", param="tools"
            )
        schemas[function["name"]] = arguments_schema(function.get("parameters"))
    return schemas


def tool_at_fault(schemas: Schemas, vocabulary: Vocabulary) -> InvalidConstraintError | None:
    """Which tool's schema is why a call's grammar was refused, if one is; compiles them all.

    In the whole grammar a schema's path begins with places that the client has never seen.
    """
    for name, schema in schemas.items():
        try:
            compile_constraint(JsonSchema(schema), vocabulary)
        except GrammarTooComplexError:
            continue
        except ConstraintError as error:
            return InvalidConstraintError(
                f"the schema of the tool {name!r}: {error}", param="tools"
            )
    return None
