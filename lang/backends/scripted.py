"""ScriptedBackend: programs without a model, for tests and for trying things out."""

from __future__ import annotations

import asyncio
import concurrent.futures
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from pydantic_core import to_json

from ramet.grammars.errors import ConstraintError
from ramet.lang.backends.base import (
    Call,
    CallPlace,
    ContinuationScore,
    GenerateCall,
    Prompt,
    ScoreCall,
    Scores,
    WarmCall,
)
from ramet.lang.base.errors import ScriptError
from ramet.lang.graph.nodes import Gen, Select
from ramet.lang.types.matching import is_compiled, match_text
from ramet.runtime.api.errors import InvalidConstraintError
from ramet.runtime.api.events import Finished, TextDelta, Timings, Usage
from ramet.runtime.api.names import suggests_names
from ramet.runtime.api.request import HintUpdate

Answer = Any
"""A text; anything else is written as JSON; an exception is raised; a function of the call returns
any of these."""

_CHARS_A_PIECE = 4


class ScriptedBackend:
    """Answers calls from a script, without delay.

    Args:
        by_name: what to answer, by variable: one answer for every call, or a list of answers that
            are used up in the order in which calls arrive (a batch's runs start in an order of
            their own: see ``run_batch``). A Select's answer is one of its choices, or a mapping of
            scores.
        queue: answers for calls that ``by_name`` doesn't know, in the order of arrival.
        default: the answer when nothing else is left.
        check_constraints: refuse a script whose text the call's constraint doesn't allow.
        writes_tool_calls: whether agent loops run as with a model that has a format of its own
            for calls; a script gives the records of turns (see ``AgentTurn``) either way.

    ``calls`` holds every call that was made. ``hold(name)`` keeps a variable's calls waiting until
    ``release(name)``, so that a test can decide what finishes when.
    """

    name = "scripted"

    @suggests_names
    def __init__(
        self,
        by_name: Mapping[str, Answer | list[Answer]] | None = None,
        *,
        queue: Iterable[Answer] = (),
        default: Answer | None = None,
        check_constraints: bool = True,
        writes_tool_calls: bool = False,
    ) -> None:
        self.writes_tool_calls = writes_tool_calls
        self._by_name: dict[str, Answer | deque[Answer]] = {
            name: deque(answer) if isinstance(answer, list) else answer
            for name, answer in (by_name or {}).items()
        }
        self._queue = deque(queue)
        self._default = default
        self._check_constraints = check_constraints
        self._gates: dict[str, concurrent.futures.Future[None]] = {}
        self.calls: list[GenerateCall | ScoreCall] = []
        self.warmed: list[Prompt] = []
        self.running: set[str] = set()
        self.aborted: list[str] = []
        self.hint_updates: list[HintUpdate] = []

    def hold(self, *names: str) -> None:
        """Blocks calls of these variables until ``release``."""
        for name in names:
            self._gates[name] = concurrent.futures.Future()

    def release(self, *names: str) -> None:
        """Unblocks calls of these variables; safe from any thread."""
        for name in names:
            self._gates.pop(name).set_result(None)

    def check(self, node: Gen | Select, place: CallPlace) -> None:
        """Everything can be scripted."""

    async def stream(self, call: GenerateCall) -> AsyncIterator[TextDelta | Finished]:
        """The scripted text in small pieces."""
        self.calls.append(call)
        text = await self._guarded(call, lambda answer: self._text(call, answer))
        for start in range(0, len(text), _CHARS_A_PIECE):
            await asyncio.sleep(0)
            yield TextDelta(text[start : start + _CHARS_A_PIECE])
        yield _finished(call.prompt, len(text))

    async def score(self, call: ScoreCall) -> Scores:
        """Scores that make the scripted choice the best by every method."""
        self.calls.append(call)
        numbers = await self._guarded(call, lambda answer: _scores(call, answer))
        scores = tuple(
            ContinuationScore((index,), (number,), (0.0,) if call.unconditional else ())
            for index, number in enumerate(numbers)
        )
        return Scores(scores, _finished(call.prompt, 0))

    async def warm(self, call: WarmCall) -> None:
        """Notes the beginning of the prompt in ``warmed``; a script computes nothing."""
        self.warmed.append(call.prompt)

    async def count_tokens(self, prompt: Prompt) -> int:
        """The prompt's length in characters: a script's token is a character."""
        return len(prompt.text)

    async def update_hint(self, update: HintUpdate) -> None:
        """Records updates of a run's hints, and its end, in ``hint_updates``."""
        self.hint_updates.append(update)

    @property
    def ended_programs(self) -> list[str]:
        """The runs that have ended, by their program ids."""
        return [update.program_id for update in self.hint_updates if update.has_ended]

    async def aclose(self) -> None:
        """Nothing is held."""

    async def _guarded(self, call: Call, read: Callable[[Answer], Any]) -> Any:
        node_id = call.node_id
        self.running.add(node_id)
        try:
            gate = self._gates.get(call.name)
            if gate is not None:
                await asyncio.shield(asyncio.wrap_future(gate))
            answer = self._answer(call)
            if callable(answer):
                answer = answer(call)
                if asyncio.iscoroutine(answer):
                    answer = await answer
            if isinstance(answer, BaseException):
                raise answer
            constraint = call.constraint if isinstance(call, GenerateCall) else None
            if constraint is None or not self._check_constraints or is_compiled(constraint):
                return read(answer)
            return await asyncio.to_thread(read, answer)
        except asyncio.CancelledError:
            self.aborted.append(node_id)
            raise
        finally:
            self.running.discard(node_id)

    def _answer(self, call: Call) -> Answer:
        answer = self._by_name.get(call.name)
        if isinstance(answer, deque):
            if not answer:
                raise ScriptError(f"the script has no more answers for {call.name!r}")
            return answer.popleft()
        if answer is not None:
            return answer
        if self._queue:
            return self._queue.popleft()
        if self._default is not None:
            return self._default
        raise ScriptError(f"the script has no answer for {call.name!r}")

    def _text(self, call: GenerateCall, answer: Answer) -> str:
        text = answer if isinstance(answer, str) else to_json(answer).decode()
        if call.constraint is not None and self._check_constraints:
            try:
                outcome = match_text(call.constraint, text)
            except ConstraintError as error:
                raise InvalidConstraintError(
                    str(error), pointer=error.path, reason=error.reason
                ) from error
            if not outcome:
                raise ScriptError(
                    f"the answer for {call.name!r} breaks its constraint at byte "
                    f"{outcome.offset} of {text!r}; expected {outcome.expected}"
                )
        return text


def _scores(call: ScoreCall, answer: Answer) -> list[float]:
    if isinstance(answer, Mapping):
        return [float(answer.get(choice, -math.inf)) for choice in call.continuations]
    if answer not in call.continuations:
        raise ScriptError(f"{answer!r} is none of the choices of {call.name!r}")
    return [-0.1 if choice == answer else -5.0 for choice in call.continuations]


def _finished(prompt: Prompt, num_chars: int) -> Finished:
    usage = Usage(prompt_tokens=len(prompt.text), completion_tokens=num_chars)
    return Finished("stop", usage, Timings())
