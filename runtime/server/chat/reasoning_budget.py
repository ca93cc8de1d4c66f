"""Reasoning of a bounded length, as two requests of the engine that look like one.

The first request may only reason: the tag that opens the reasoning is put before its output, its
grammar ends with the end tag, and its tokens with the budget. The second continues the first's
tokens, with the end tag added where the budget has cut them; the prefix cache has all but the last
of them. Its grammar is the answer's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ramet.grammars.constraints import Constraint, FixedText, FreeText, Series, StructuralTag
from ramet.runtime.api.errors import ContextLengthError, RametError
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta, Timings, TokenInfo, Usage
from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import Submit
from ramet.runtime.parsers import ReasoningFormat
from ramet.runtime.tokenizer import Tokenizer

_LEAST_DEADLINE_S = 1e-3
"""A deadline that has passed is one that is about to."""


@dataclass(frozen=True, slots=True)
class ReasoningBudget:
    """How long a request may reason, and what its answer must match then.

    Attributes:
        num_tokens: of reasoning, most. Where the call has room for fewer, as many as leave room
            for the end tag and one token of the answer.
        reasoning: the tags.
        is_open: the prompt has opened the reasoning.
        answer: what the text behind the reasoning must match; None: anything.
    """

    num_tokens: int
    reasoning: ReasoningFormat
    is_open: bool
    answer: Constraint | None

    @property
    def opening(self) -> str:
        """The text that opens the reasoning, where the prompt hasn't."""
        return "" if self.is_open else self.reasoning.begin + self.reasoning.gap

    @property
    def closing(self) -> str:
        """The text that ends reasoning that is cut."""
        gap = self.reasoning.gap
        return gap + self.reasoning.end + (self.reasoning.follow or gap * 2)

    def thought(self) -> Constraint:
        """What the first request's output must match."""
        end = self.reasoning.end
        return StructuralTag(Series((FreeText(excluded=(end,)), FixedText(end))))


class BudgetedStream:
    """The events of a request whose reasoning is bounded; see ``EventSource``.

    Args:
        request: as it would be without the budget.
        max_context_len: of the engine, in tokens.

    Raises:
        ContextLengthError: there is no room for reasoning and an answer.
    """

    def __init__(
        self,
        request: Request,
        budget: ReasoningBudget,
        tokenizer: Tokenizer,
        submit: Submit,
        max_context_len: int,
    ) -> None:
        self._request = request
        self._budget = budget
        self._tokenizer = tokenizer
        self._submit = submit
        self._opening = tuple(tokenizer.encode(budget.opening, allow_special=True))
        self._closing = tuple(tokenizer.encode(budget.closing, allow_special=True))
        self._follow = tuple(tokenizer.encode(budget.reasoning.follow, allow_special=True))
        self._token_ids = list(self._opening)
        self._num_added = len(self._opening)
        self._first: Finished | None = None
        self._is_opened = budget.is_open
        self._is_aborted = False
        params = request.params
        room = max_context_len - len(request.prompt_token_ids)
        room = min(room, params.max_tokens or room) - len(self._opening) - len(self._closing) - 1
        if room < 1:
            raise ContextLengthError(
                "there is no room for reasoning and an answer; raise max_tokens, or shorten the "
                "conversation",
                param="max_tokens",
            )
        self._source = submit(
            dataclasses.replace(
                request,
                prompt_token_ids=(*request.prompt_token_ids, *self._opening),
                params=dataclasses.replace(
                    params, max_tokens=min(budget.num_tokens, room), min_tokens=0
                ),
                constraint=budget.thought(),
            )
        )

    def take(self) -> list[Event]:
        """Every event that is ready now, without waiting."""
        return [self._passed_on(event) for event in self._source.take()]

    def abort(self) -> None:
        """Ends the request within a step."""
        self._is_aborted = True
        self._source.abort()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if not self._is_opened:
            self._is_opened = True
            return self._text_of(self._opening)
        return self._passed_on(await anext(self._source))

    def _passed_on(self, event: Event) -> Event:
        """An event as the reader sees it: the first request's good end is not its end."""
        match event:
            case Failed(error, usage):
                return Failed(error, self._total(usage))
            case Finished() if self._first is None and event.matched_stop is None:
                return self._answer(event)
            case Finished():
                return dataclasses.replace(
                    event, usage=self._total(event.usage), timings=self._whole_time(event.timings)
                )
            case TextDelta() if self._first is None:
                self._token_ids += [token.token_id for token in event.tokens]
        return event

    def _answer(self, end: Finished) -> TextDelta | Failed:
        """Begins the second request; the text that is put between the two."""
        self._first = end
        added = self._closing if end.reason == "length" else self._follow
        self._num_added += len(added)
        used = end.usage.completion_tokens + self._num_added
        params = self._request.params
        left = None if params.max_tokens is None else params.max_tokens - used
        request = dataclasses.replace(
            self._request,
            prompt_token_ids=(*self._request.prompt_token_ids, *self._token_ids, *added),
            params=dataclasses.replace(
                params, max_tokens=left, min_tokens=max(0, params.min_tokens - used)
            ),
            constraint=self._budget.answer,
            deadline_s=self._time_left(end.timings),
            request_id=f"{self._request.request_id}-answer",
        )
        try:
            self._source = self._submit(request)
        except RametError as error:
            return Failed(error, self._total(Usage()))
        if self._is_aborted:
            self._source.abort()
        return self._text_of(added)

    def _time_left(self, first: Timings) -> float | None:
        """What of the call's deadline the first request has left to the second."""
        deadline, used = self._request.deadline_s, first.finished_s
        if deadline is None or used is None:
            return deadline
        return max(deadline - used, _LEAST_DEADLINE_S)

    def _text_of(self, token_ids: Sequence[int]) -> TextDelta:
        """Tokens that are put into the output."""
        token_bytes = self._tokenizer.token_bytes
        tokens = tuple(TokenInfo(each, token_bytes(each)) for each in token_ids)
        return TextDelta(self._tokenizer.decode(token_ids, skip_special=False), tokens)

    def _total(self, last: Usage) -> Usage:
        """The counts of the whole, from those of the request that is running."""
        first = self._first.usage if self._first else Usage()
        num_prompt = len(self._request.prompt_token_ids)
        cached = first.cached_tokens if self._first else last.cached_tokens
        return Usage(
            prompt_tokens=num_prompt,
            completion_tokens=(first.completion_tokens + self._num_added + last.completion_tokens),
            cached_tokens=min(cached, num_prompt),
            forced_tokens=first.forced_tokens + self._num_added + last.forced_tokens,
        )

    def _whole_time(self, last: Timings) -> Timings:
        if self._first is None:
            return last
        first, end = self._first.timings, None
        if first.finished_s is not None and last.finished_s is not None:
            end = first.finished_s + last.finished_s
        return dataclasses.replace(
            first, finished_s=end, grammar_s=first.grammar_s + last.grammar_s
        )
