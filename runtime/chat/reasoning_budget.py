"""Bounds the length of reasoning by two engine requests that look like one.

The first request may only reason: the tag that opens the reasoning is put before its output, its
grammar ends with the end tag, and its tokens with the budget. The second continues the first's
tokens, with the end tag added where the budget has cut them; the prefix cache has all but the last
of them. Its grammar is the answer's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from ramet.grammars.constraints import Constraint, FixedText, FreeText, Series, StructuralTag
from ramet.runtime.api.errors import ContextLengthError, InvalidParameterError, RametError
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta, Timings, TokenInfo, Usage
from ramet.runtime.api.request import Request
from ramet.runtime.engine.api import Submit
from ramet.runtime.parsers import ReasoningFormat
from ramet.runtime.tokenizer import Tokenizer

_LEAST_DEADLINE_S = 1e-3
"""Remaining time that is given to a request whose deadline has passed."""


@dataclass(frozen=True, slots=True)
class ReasoningBudget:
    """The most reasoning of a request, and the constraint of its answer.

    Attributes:
        num_tokens: most tokens of reasoning; fewer if the context is too short for these, the end
            tag and one token of the answer.
        reasoning: the tags.
        is_open: the prompt ends inside reasoning.
        answer: constraint of the text after the reasoning; None: unconstrained.
    """

    num_tokens: int
    reasoning: ReasoningFormat
    is_open: bool
    answer: Constraint | None

    @property
    def opening(self) -> str:
        """The text that opens the reasoning, unless the prompt has."""
        return "" if self.is_open else self.reasoning.begin + self.reasoning.gap

    @property
    def closing(self) -> str:
        """The text that ends truncated reasoning."""
        gap = self.reasoning.gap
        return gap + self.reasoning.end + (self.reasoning.follow or gap * 2)

    def reasoning_constraint(self) -> Constraint:
        """The constraint of the first request."""
        end = self.reasoning.end
        return StructuralTag(Series((FreeText(excluded=(end,)), FixedText(end))))


class BudgetedStream:
    """Events of a request with bounded reasoning; an ``EventSource``.

    Args:
        request: the request without the budget.
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
        encode = functools.partial(tokenizer.encode, allow_special=True, continues=True)
        self._opening = tuple(encode(budget.opening))
        self._closing = tuple(encode(budget.closing))
        self._follow = tuple(encode(budget.reasoning.follow))
        self._token_ids = list(self._opening)
        self._num_added = len(self._opening)
        self._first: Finished | None = None
        self._answer = request
        self._is_opened = budget.is_open
        self._is_aborted = False
        params = request.params
        max_reasoning_len = max_context_len - len(request.prompt_token_ids)
        max_reasoning_len = (
            min(max_reasoning_len, params.max_tokens or max_reasoning_len)
            - len(self._opening)
            - len(self._closing)
            - 1
        )
        if max_reasoning_len < 1:
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
                    params, max_tokens=min(budget.num_tokens, max_reasoning_len), min_tokens=0
                ),
                constraint=budget.reasoning_constraint(),
                complete=False,
                stop_anywhere=budget.answer is None,
            )
        )

    def take(self) -> list[Event]:
        """All events that are ready, without waiting."""
        return [self._translate(event) for event in self._source.take()]

    def abort(self) -> None:
        """Ends the request within a step."""
        self._is_aborted = True
        self._source.abort()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if not self._is_opened:
            self._is_opened = True
            return self._inserted_text(self._opening)
        return self._translate(await anext(self._source))

    def _translate(self, event: Event) -> Event:
        """Translates an event: a normal end of the first request starts the second."""
        match event:
            case Failed(error) if self._is_short(error):
                return self._submit_answer(dataclasses.replace(self._answer, complete=False), ())
            case Failed(error, usage):
                return Failed(error, self._total_usage(usage))
            case Finished() if self._first is None and event.matched_stop is None:
                return self._start_answer(event)
            case Finished():
                return dataclasses.replace(
                    event,
                    usage=self._total_usage(event.usage),
                    timings=self._total_timings(event.timings),
                )
            case TextDelta() if self._first is None:
                self._token_ids += [token.token_id for token in event.tokens]
        return event

    def _start_answer(self, end: Finished) -> TextDelta | Failed:
        """Ends the reasoning and submits the second request."""
        self._first = end
        added = self._closing if end.reason == "length" else self._follow
        self._num_added += len(added)
        used = end.usage.completion_tokens + self._num_added
        params = self._request.params
        left = None if params.max_tokens is None else params.max_tokens - used
        self._answer = dataclasses.replace(
            self._request,
            prompt_token_ids=(*self._request.prompt_token_ids, *self._token_ids, *added),
            params=dataclasses.replace(
                params, max_tokens=left, min_tokens=max(0, params.min_tokens - used)
            ),
            constraint=self._budget.answer,
            deadline_s=self._time_left(end.timings),
            request_id=f"{self._request.request_id}-answer",
        )
        return self._submit_answer(self._answer, added)

    def _is_short(self, error: RametError) -> bool:
        """Whether the reasoning has left too few tokens for a complete answer, where one was
        wanted if possible."""
        is_short = isinstance(error, InvalidParameterError) and error.param == "max_tokens"
        return is_short and self._first is not None and self._answer.complete is None

    def _submit_answer(self, request: Request, added: Sequence[int]) -> TextDelta | Failed:
        """Submits the second request; returns the text inserted between the two."""
        self._answer = request
        try:
            self._source = self._submit(request)
        except RametError as error:
            return Failed(error, self._total_usage(Usage()))
        if self._is_aborted:
            self._source.abort()
        return self._inserted_text(added)

    def _time_left(self, first: Timings) -> float | None:
        """The rest of the deadline, for the second request."""
        deadline, used = self._request.deadline_s, first.finished_s
        if deadline is None or used is None:
            return deadline
        return max(deadline - used, _LEAST_DEADLINE_S)

    def _inserted_text(self, token_ids: Sequence[int]) -> TextDelta:
        """A delta of tokens that are inserted into the output."""
        token_bytes = self._tokenizer.token_bytes
        tokens = tuple(TokenInfo(each, token_bytes(each)) for each in token_ids)
        text = self._tokenizer.decode_bytes(token_ids, skip_special=False)
        return TextDelta(text.decode("utf-8", "replace"), tokens)

    def _total_usage(self, last: Usage) -> Usage:
        """The usage of both requests, given that of the current one."""
        first = self._first.usage if self._first else Usage()
        num_prompt = len(self._request.prompt_token_ids)
        cached = first.cached_tokens if self._first else last.cached_tokens
        return Usage(
            prompt_tokens=num_prompt,
            completion_tokens=(first.completion_tokens + self._num_added + last.completion_tokens),
            cached_tokens=min(cached, num_prompt),
            forced_tokens=first.forced_tokens + self._num_added + last.forced_tokens,
            completion_forced_tokens=last.completion_forced_tokens,
        )

    def _total_timings(self, last: Timings) -> Timings:
        if self._first is None:
            return last
        first, end = self._first.timings, None
        if first.finished_s is not None and last.finished_s is not None:
            end = first.finished_s + last.finished_s
        return dataclasses.replace(
            first, finished_s=end, grammar_s=first.grammar_s + last.grammar_s
        )
