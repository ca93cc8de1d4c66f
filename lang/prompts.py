"""From a graph's nodes and their results to the prompt of a call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ramet.lang.backends.base import Message, Prompt
from ramet.lang.graph import RequestGraph
from ramet.lang.nodes import CALL_KINDS, Gen, Node, Select, Text, TextWithRefs
from ramet.lang.references import Ref, Template
from ramet.lang.values import NodeResult

ResultOf = Callable[[str], NodeResult]
"""The result of a finished node, by its id."""


def render_prompt(graph: RequestGraph, node: Gen | Select, result_of: ResultOf) -> Prompt:
    """The prompt of a call all of whose needs have finished."""
    before = graph.chain(node.parent)
    previous = next((n.id for n in reversed(before) if isinstance(n, CALL_KINDS)), None)
    text = None if previous is None else result_of(previous).text
    return Prompt(messages_of(before, result_of), previous, text)


def static_head(
    graph: RequestGraph, node: Gen | Select, is_settled: Callable[[str], bool], result_of: ResultOf
) -> Prompt | None:
    """The beginning of a waiting call's prompt, up to the first value that isn't there yet.

    None where the call waits for an earlier call of its own state, whose prompt that beginning
    is anyway, and where there is nothing to compute.
    """
    known: list[Node] = []
    for before in graph.chain(node.parent):
        if isinstance(before, CALL_KINDS) and not is_settled(before.id):
            return None
        if isinstance(before, Text):
            ready = list(
                itertools.takewhile(
                    lambda part: isinstance(part, str) or is_settled(part.node_id), before.parts
                )
            )
            if len(ready) < len(before.parts):
                known.append(replace(before, parts=tuple(ready)))
                break
        known.append(before)
    else:
        return None
    previous = next((n.id for n in reversed(known) if isinstance(n, CALL_KINDS)), None)
    text = None if previous is None else result_of(previous).text
    messages = messages_of(known, result_of)
    return Prompt(messages, previous, text) if any(m.content for m in messages) else None


def messages_of(nodes: Iterable[Node], result_of: ResultOf) -> tuple[Message, ...]:
    """The turns that a state's nodes make, or one message without a role."""
    messages: list[Message] = []
    turn: int | None = None
    for node in nodes:
        if isinstance(node, Text):
            content = render(node.parts, result_of)
        elif isinstance(node, CALL_KINDS):
            content = result_of(node.id).text
        else:
            continue
        if turn == node.turn and messages:
            last = messages[-1]
            messages[-1] = Message(last.role, last.content + content)
        else:
            messages.append(Message(node.role, content))
            turn = node.turn
    return tuple(messages)


def render(parts: Template, result_of: ResultOf) -> str:
    """Text with every reference replaced by what it refers to."""
    return "".join(
        part if isinstance(part, str) else _format(result_of(part.node_id), part.spec)
        for part in parts
    )


def fill(data: Any, result_of: ResultOf) -> Any:
    """A ToolCall's arguments with every reference replaced."""
    if isinstance(data, Ref):
        return result_of(data.node_id).value
    if isinstance(data, TextWithRefs):
        return render(data.parts, result_of)
    if isinstance(data, Mapping):
        return {key: fill(item, result_of) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(fill(item, result_of) for item in data)
    return data


def _format(result: NodeResult, spec: str) -> str:
    return format(result.value, spec) if spec else result.text
