"""Turns of an agent loop: prompt, constraint and record of one, in the model's own format.

A turn's *record* is JSON text, the same for every model: ``{"answer": ...}``, or
``{"tool_calls": [{"name": ..., "arguments": {...}}]}`` with the text before the calls, if there is
any, as ``"answer"`` in front of them. Text behind the first call is not recorded.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.agent_turn import AgentTurn
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.chat.conversation import Conversation
from ramet.runtime.chat.field_warnings import FieldWarnings
from ramet.runtime.chat.offered_tools import OfferedTool, offered_function
from ramet.runtime.chat.param_paths import RequestedConstraint
from ramet.runtime.chat.planner import ChatPlanner
from ramet.runtime.chat.settings import DetectedFormats
from ramet.runtime.parsers import (
    ChatDelta,
    ChatReader,
    ContentDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
)
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer
from ramet.runtime.tokenizer.encoders import PromptPiece

PastMessage = tuple[str, str, bool]
"""Role and content of a message, and whether the content is a turn's record."""


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A turn's constraint and parameters, and the writer of its record."""

    constraint: Constraint | None
    params: SamplingParams
    writer: RecordWriter


class AgentTurns:
    """Plans turns of agent loops for one model, as the server plans chats.

    Args:
        tokenizer: the model's.
        template: a chat template that prints tools.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        # The engine refuses prompts that are too long for it.
        self._planner = ChatPlanner(tokenizer, template, DetectedFormats(), sys.maxsize)

    def render(
        self,
        messages: Sequence[PastMessage],
        functions: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
        *,
        continues: bool = False,
    ) -> list[PromptPiece]:
        """Prints a conversation with its tools; where it ``continues``, without the end of its
        last turn."""
        conversation = Conversation(
            messages=_openai_messages(messages),
            tools=_offered(functions),
            template_variables=variables,
            add_generation_prompt=not continues,
            continue_final_message=continues,
        )
        return self._planner.render(conversation)

    async def plan(
        self, turn: AgentTurn, prompt: tuple[int, ...], params: SamplingParams
    ) -> PlannedTurn:
        """Plans a turn after an encoded prompt.

        Raises:
            InvalidConstraintError: a tool whose calls the format can't hold to its schema.
        """
        conversation = Conversation(
            messages=(),
            tools=_offered(turn.functions),
            tool_choice="none" if not turn.max_calls else "required" if turn.must_call else "auto",
            max_calls=turn.max_calls or None,
            keeps_tools=True,
            constraint=None if turn.answer is None else RequestedConstraint(turn.answer, "answer"),
        )
        plan = await self._planner.plan(conversation, FieldWarnings(), prompt=prompt)
        writer = RecordWriter(plan.parser(), is_json=turn.answer is not None)
        return PlannedTurn(plan.constraint, plan.adapt(params), writer)


def _offered(functions: Sequence[Mapping[str, Any]]) -> tuple[OfferedTool, ...]:
    return tuple(offered_function(each, f"tools.{each['name']}") for each in functions)


class RecordWriter:
    """Writes a turn's record while the model's output comes.

    Args:
        reader: reads the model's output.
        is_json: the answer is JSON, else text.
    """

    def __init__(self, reader: ChatReader, *, is_json: bool) -> None:
        self._reader = reader
        self._is_json = is_json
        self._in_answer = False
        self._num_calls = 0
        self._is_cut = False

    def feed(self, piece: str) -> str:
        """The next part of the record."""
        return "".join(map(self._write, self._reader.feed(piece)))

    def finish(self, *, is_cut: bool) -> str:
        """The rest of the record.

        Of an output that was cut off, a call and a typed answer stay incomplete; a text is what
        there is of it.
        """
        rest = "".join(map(self._write, self._reader.feed("", final=True)))
        if self._is_cut or (is_cut and self._is_json and not self._num_calls):
            return rest
        if self._num_calls:
            return rest + "]}"
        if not self._in_answer:
            rest += self._begin_answer()
        return rest + ("}" if self._is_json else '"}')

    def _write(self, delta: ChatDelta) -> str:
        if isinstance(delta, ContentDelta):
            if self._num_calls:
                return ""
            text = delta.text if self._is_json else json.dumps(delta.text, ensure_ascii=False)[1:-1]
            return text if self._in_answer else self._begin_answer() + text
        if isinstance(delta, ToolCallStart):
            begin = ", " if self._num_calls else self._begin_calls()
            self._num_calls += 1
            return f'{begin}{{"name": {json.dumps(delta.name)}, "arguments": '
        if isinstance(delta, ToolArgumentsDelta):
            return delta.text
        if isinstance(delta, ToolCallEnd):
            self._is_cut |= not delta.complete
            return "}" if delta.complete else ""
        return ""  # reasoning

    def _begin_answer(self) -> str:
        self._in_answer = True
        return '{"answer": ' if self._is_json else '{"answer": "'

    def _begin_calls(self) -> str:
        if not self._in_answer:
            return '{"tool_calls": ['
        return ', "tool_calls": [' if self._is_json else '", "tool_calls": ['


def _openai_messages(messages: Sequence[PastMessage]) -> list[dict[str, Any]]:
    """The messages in OpenAI's shape: of a record that was cut off, the complete calls."""
    out: list[dict[str, Any]] = []
    waiting: deque[tuple[str, str]] = deque()  # ids and names of calls without a result
    num_calls = 0
    for role, content, is_record in messages:
        message: dict[str, Any] = {"role": role, "content": content}
        if role == "tool" and waiting:
            message["tool_call_id"], message["name"] = waiting.popleft()
        elif is_record:
            data = read_record(content)
            answer = data.get("answer", "")
            is_text = isinstance(answer, str)
            message["content"] = answer if is_text else json.dumps(answer, ensure_ascii=False)
            calls = []
            for call in data.get("tool_calls", ()):
                waiting.append((f"call{num_calls:05}", call["name"]))  # some templates want 9 chars
                calls.append({"id": waiting[-1][0], "type": "function", "function": call})
                num_calls += 1
            if calls:
                message["tool_calls"] = calls
        out.append(message)
    return out


def read_record(record: str) -> dict[str, Any]:
    """What a record holds, as far as it is complete: "answer", "tool_calls" or both."""
    try:
        whole: dict[str, Any] = json.loads(record)
    except ValueError:
        return _read_cut(record)
    return whole


def _read_cut(record: str) -> dict[str, Any]:
    decoder = json.JSONDecoder()
    data: dict[str, Any] = {}
    index = _skipped(record, 0, "{ \n\t\r")
    while record.startswith('"', index):
        try:
            key, index = decoder.raw_decode(record, index)
            index = _skipped(record, index, ": \n\t\r")
            if key != "tool_calls":
                data[key], index = decoder.raw_decode(record, index)
            else:
                index = _skipped(record, index, "[ \n\t\r")
                calls = data.setdefault(key, [])
                while index < len(record):
                    call, index = decoder.raw_decode(record, index)
                    calls.append(call)
                    index = _skipped(record, index, ", \n\t\r")
        except ValueError:
            break
        index = _skipped(record, index, ", \n\t\r")
    return data


def _skipped(text: str, index: int, characters: str) -> int:
    """The index behind any of some characters."""
    while index < len(text) and text[index] in characters:
        index += 1
    return index
