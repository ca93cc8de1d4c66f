"""Builds the prompts of calls from a graph's nodes and their results."""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ramet.lang.backends.base import Message, Prompt
from ramet.lang.base.errors import ReferenceFormatError
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import CALL_KINDS, Gen, Node, Role, Select, Text, TextWithRefs
from ramet.lang.graph.references import Ref, Template
from ramet.lang.types.values import NodeResult

ResultOf = Callable[[str], NodeResult]
"""The result of a finished node, by its id."""

TextOf = Callable[[Ref], str]
"""The text of a reference to a finished node."""

Functions = tuple[Mapping[str, Any], ...]
"""Tools as OpenAI's ``function`` objects."""

_MAX_REMEMBERED = 256

_MAX_DIGITS = 4
"""Of a width or precision in a reference's specification."""


class Prompts:
    """Builds the prompts of a run's calls, each from that of the call that it extends."""

    def __init__(
        self, graph: RequestGraph, text_of: TextOf, template_variables: Mapping[str, Any]
    ) -> None:
        self._template_variables = template_variables
        self._graph = graph
        self._text_of = text_of
        self._made: OrderedDict[str, tuple[tuple[Message, ...], int, Functions]] = OrderedDict()

    def prompt(self, node: Gen | Select) -> Prompt:
        """The prompt of a call all of whose needs have finished."""
        previous, nodes = self._since_last_call(node)
        turns = self._turns_before(previous)
        turns.add(nodes)
        turns.show_tools(node)
        self._remember(node.id, turns)
        return self._prompt(turns, previous)

    def static_head(self, node: Gen | Select, is_settled: Callable[[str], bool]) -> Prompt | None:
        """The beginning of a waiting call's prompt, up to the first value that isn't there yet.

        None where the call waits for an earlier call of its own state, whose prompt that beginning
        is anyway, and where there is nothing to compute.
        """
        previous, nodes = self._since_last_call(node)
        if previous is not None and not is_settled(previous):
            return None
        known: list[Node] = []
        for before in nodes:
            if isinstance(before, Text):
                ready = list(
                    itertools.takewhile(
                        lambda part: isinstance(part, str) or is_settled(part.node_id),
                        before.parts,
                    )
                )
                if len(ready) < len(before.parts):
                    known.append(replace(before, parts=tuple(ready)))
                    break
            known.append(before)
        else:
            return None
        turns = self._turns_before(previous)
        turns.add(known)
        turns.show_tools(node)
        prompt = self._prompt(turns, previous)
        return prompt if any(message.content for message in prompt.messages) else None

    def _since_last_call(self, node: Node) -> tuple[str | None, list[Node]]:
        """The last call before a node in its state, and the nodes between the two, in order."""
        nodes: list[Node] = []
        for before in self._graph.back_from(node.parent):
            if isinstance(before, CALL_KINDS):
                return before.id, nodes[::-1]
            nodes.append(before)
        return None, nodes[::-1]

    def _turns_before(self, previous: str | None) -> _Turns:
        """A call's prompt and what it gave, or nothing."""
        if previous is None:
            return _Turns(self._text_of)
        call = self._graph[previous]
        made = self._made.get(previous)
        if made is None:
            turns = _Turns(self._text_of)
            turns.add(self._graph.chain(previous))
            return turns
        self._made.move_to_end(previous)
        turns = _Turns(self._text_of, *made)
        turns.add([call])
        return turns

    def _remember(self, node_id: str, turns: _Turns) -> None:
        self._made[node_id] = turns.messages(), turns.turn, turns.functions
        if len(self._made) > _MAX_REMEMBERED:
            self._made.popitem(last=False)

    def _prompt(self, turns: _Turns, previous: str | None) -> Prompt:
        text = None if previous is None else self._text_of(Ref(previous))
        messages = turns.messages()
        return Prompt(messages, previous, text, self._template_variables, turns.functions)


class _Turns:
    """Chat turns, or one raw text, in the making."""

    def __init__(
        self,
        text_of: TextOf,
        messages: tuple[Message, ...] = (),
        turn: int = -1,
        functions: Functions = (),
    ) -> None:
        self._text_of = text_of
        self._whole = list(messages[:-1])
        self._is_record = bool(messages) and messages[-1].is_record
        self.functions = functions
        self._role: Role | None = messages[-1].role if messages else None
        self._last = [messages[-1].content] if messages else []
        self.turn = turn

    def add(self, nodes: Iterable[Node]) -> None:
        """Appends the text of nodes."""
        for node in nodes:
            if isinstance(node, Text):
                content = render(node.parts, self._text_of)
            elif isinstance(node, CALL_KINDS):
                content = self._text_of(Ref(node.id))
            else:
                continue
            if not self._last or node.turn != self.turn:
                self._close()
                self._role, self.turn = node.role, node.turn
            self._is_record = isinstance(node, Gen) and node.agent_turn is not None
            self._last.append(content)
            self.show_tools(node)

    def show_tools(self, node: Node) -> None:
        """Shows the tools of an agent loop's turn from here on."""
        if isinstance(node, Gen) and node.agent_turn is not None:
            self.functions = node.agent_turn.functions

    def messages(self) -> tuple[Message, ...]:
        """The turns so far."""
        if not self._last:
            return tuple(self._whole)
        return (*self._whole, Message(self._role, "".join(self._last), self._is_record))

    def _close(self) -> None:
        if self._last:
            self._whole.append(Message(self._role, "".join(self._last), self._is_record))
            self._last = []


def messages_of(nodes: Iterable[Node], text_of: TextOf) -> tuple[Message, ...]:
    """The turns that a state's nodes make, or one message without a role."""
    turns = _Turns(text_of)
    turns.add(nodes)
    return turns.messages()


def render(parts: Template, text_of: TextOf) -> str:
    """Text with every reference replaced by what it refers to."""
    return "".join(part if isinstance(part, str) else text_of(part) for part in parts)


def fill(data: Any, result_of: ResultOf, text_of: TextOf) -> Any:
    """A ToolCall's arguments with every reference replaced."""
    if isinstance(data, Ref):
        return result_of(data.node_id).value
    if isinstance(data, TextWithRefs):
        return render(data.parts, text_of)
    if isinstance(data, Mapping):
        return {key: fill(item, result_of, text_of) for key, item in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(fill(item, result_of, text_of) for item in data)
    return data


def formatted(result: NodeResult, spec: str) -> str:
    """A result as text, by a reference's specification.

    Raises:
        ReferenceFormatError: the value can't be formatted so, or would be padded without reason.
    """
    if not spec:
        return result.text
    if any(len(number) > _MAX_DIGITS for number in re.findall(r"[0-9]+", spec)):
        raise ReferenceFormatError(f"the width or precision of {spec[:80]!r} is too large")
    try:
        return format(result.value, spec)
    except (TypeError, ValueError) as error:
        raise ReferenceFormatError(
            f"a value can't be formatted by {spec[:80]!r}: {error}"
        ) from None
