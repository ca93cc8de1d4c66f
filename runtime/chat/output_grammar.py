"""Builds the constraint of a chat output: reasoning, then tool calls or an answer."""

from __future__ import annotations

from ramet.grammars.constraints import (
    AnyOf,
    Constraint,
    FixedText,
    FreeText,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
)
from ramet.runtime.parsers import ReasoningFormat, ToolFormat
from ramet.runtime.parsers.channels import FINAL, MARKERS, PREAMBLE

_SPACE = Regex(r"\s{0,4}")


def chat_constraint(
    answer: Constraint | None,
    reasoning: ReasoningFormat | None,
    *,
    is_reasoning_open: bool,
    calls: Part | None,
    must_call: bool,
) -> Constraint | None:
    """Builds the constraint of the whole output; None: unconstrained.

    Args:
        answer: constraint of an answer without calls.
        reasoning: tags of optional reasoning at the start; its text is free.
        is_reasoning_open: the prompt has opened the reasoning.
        calls: the calls, with free text around them where that is allowed.
        must_call: an answer without calls is not allowed.
    """
    if calls is None and answer is None:
        return None
    options: list[Part] = [] if calls is None else [calls]
    if answer is not None and not must_call:
        options.append(_part(answer))
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


def channels_constraint(
    answer: Constraint | None,
    reasoning: ReasoningFormat,
    *,
    may_reason: bool,
    calls: Part | None,
    must_call: bool,
) -> Constraint | None:
    """``chat_constraint`` for outputs in channels: messages whose heads name their channel.

    Before a call there may be a preamble, which is text for the reader.
    """
    if calls is None and answer is None:
        return None
    free_text = FreeText(excluded=MARKERS)
    options: list[Part] = []
    if calls is not None:
        resumed = FixedText(reasoning.end + reasoning.follow)
        preamble = Series((FixedText(PREAMBLE), free_text, resumed))
        options.append(Series((Repeated(preamble, maximum=1), calls)))
    if not must_call:
        options.append(Series((FixedText(FINAL), free_text if answer is None else _part(answer))))
    rest = options[0] if len(options) == 1 else AnyOf(tuple(options))
    if not may_reason:
        return StructuralTag(rest)
    begin, end = FixedText(reasoning.begin), FixedText(reasoning.end + reasoning.follow)
    return StructuralTag(AnyOf((Series((begin, free_text, end, rest)), rest)))


def text_without_calls(tool_format: ToolFormat) -> StructuralTag:
    """Any text in which no tool call begins: models that were shown calls may write more."""
    is_channel = tool_format.style == "channels"
    return StructuralTag(FreeText(excluded=MARKERS if is_channel else tool_format.starts))


def _part(answer: Constraint) -> Part:
    return answer.root if isinstance(answer, StructuralTag) else answer
