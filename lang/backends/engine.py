"""The in-process backend: an Engine of ``ramet.runtime``."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from ramet.grammars.constraints.values import Constraint, JsonSchema
from ramet.grammars.constraints.writing import answer_schema, for_writing
from ramet.lang.backends.base import (
    Call,
    CallPlace,
    ContinuationScore,
    GenerateCall,
    Prompt,
    ScoreCall,
    Scores,
    WarmCall,
    shared_len,
)
from ramet.lang.base.errors import BackendError, UnsupportedError
from ramet.lang.graph.nodes import Gen, Select
from ramet.lang.types.values import add_usage
from ramet.runtime.api.errors import EmptyPromptError
from ramet.runtime.api.events import (
    Failed,
    Finished,
    PromptLogprobs,
    TextDelta,
    TokenInfo,
    Usage,
)
from ramet.runtime.api.off_loop import INLINE_LEN, run_off_loop
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import HintUpdate, Request
from ramet.runtime.chat.agent_turns import AgentTurns, RecordWriter

if TYPE_CHECKING:
    from ramet.runtime.engine.api import GenerationEngine

Pieces = list[tuple[str, bool]]
"""A prompt's text in pieces; the flag marks control tokens. No two texts are neighbours."""

MAX_REMEMBERED = 4096
"""Runs whose tokens are kept at most, should their ends not be reported."""

MIN_WARM_LEN = 32
"""Tokens below which computing a beginning ahead isn't worth a request."""


@dataclass(frozen=True, slots=True)
class _SentPrompt:
    """A call's prompt and output, as text and as the tokens that were sent and sampled."""

    pieces: Pieces
    token_ids: tuple[int, ...]


class EngineBackend:
    """Sends calls to an engine. The engine stays the caller's: it isn't closed.

    A prompt that goes on from an earlier call of its run begins with exactly that call's tokens,
    prompt and output, so that the prefix cache holds all of them, however another tokenisation
    of the same text would go. Where the chat template prints the earlier turns differently than
    they were (some trim them), the whole prompt is encoded again.
    """

    def __init__(self, engine: GenerationEngine) -> None:
        self._engine = engine
        self._sent: OrderedDict[str, dict[str, _SentPrompt]] = OrderedDict()  # by run, by node
        template = engine.chat_template
        has_tools = template is not None and template.prints_tools
        self._turns = AgentTurns(engine.tokenizer, template) if template and has_tools else None

    @property
    def name(self) -> str:
        """The model's name."""
        return f"engine:{self._engine.model_name}"

    @property
    def writes_tool_calls(self) -> bool:
        """Whether the chat template prints tools."""
        return self._turns is not None

    def check(self, node: Gen | Select, place: CallPlace) -> None:
        """Refuses chat where the model has no chat template, and scoring in a generation."""
        if place.is_chat and self._engine.chat_template is None:
            raise UnsupportedError(self.name, "chat template", node.id)
        if isinstance(node, Gen) and node.agent_turn and (self._turns is None or not place.is_chat):
            raise UnsupportedError(self.name, "chat template with tools", node.id)
        if isinstance(node, Gen) and node.params.prompt_logprobs is not None:
            raise UnsupportedError(self.name, "sampling parameter 'prompt_logprobs'", node.id)

    async def stream(self, call: GenerateCall) -> AsyncIterator[TextDelta | Finished]:
        """The call's text as the engine's steps make it."""
        pieces, prompt_ids, _ = await self._encode(call)
        request = self._request(call, prompt_ids, call.params)
        record: RecordWriter | None = None
        if call.agent_turn is not None:
            assert self._turns is not None  # check() has refused it otherwise
            planned = await self._turns.plan(call.agent_turn, prompt_ids, call.params)
            record = planned.writer
            request = replace(request, constraint=planned.constraint, params=planned.params)
        texts: list[str] = []
        tokens: list[TokenInfo] = []
        async with self._engine.submit(request) as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, TextDelta):
                    texts.append(event.text)
                    tokens.extend(event.tokens)
                    yield event if record is None else replace(event, text=record.feed(event.text))
                elif isinstance(event, Finished):
                    self._remember(call, pieces, prompt_ids, "".join(texts), tokens)
                    if record is not None:
                        yield TextDelta(record.finish(is_cut=event.reason == "length"))
                    yield event

    async def score(self, call: ScoreCall) -> Scores:
        """Log-probabilities of the continuations: a request each, which share the prompt.

        A continuation is encoded together with the prompt, as one would write it, so its first
        token may begin with the prompt's last characters (a space, most often). All are scored
        from the same token on, the first at which one of them leaves the prompt.
        """
        pieces, prompt_ids, wholes = await self._encode(call, call.continuations)
        tokenizer = self._engine.tokenizer
        begin = tokenizer.begin_id
        start = shared_len([prompt_ids, *wholes])
        if start == 0:  # nothing is before them, so the first tokens need one to follow
            wholes, start = [(begin, *whole) for whole in wholes], 1
        jobs = [self._score_from(call, whole, start) for whole in wholes]
        if call.unconditional:
            jobs += [self._score_from(call, (begin, *whole[start:]), 1) for whole in wholes]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(job) for job in jobs]
        except ExceptionGroup as failed:  # the others were cancelled for the first
            raise failed.exceptions[0] from None
        done = [task.result() for task in tasks]
        scores = tuple(
            ContinuationScore(
                whole[start:],
                done[index][0],
                done[index + len(wholes)][0] if call.unconditional else (),
            )
            for index, whole in enumerate(wholes)
        )
        for text, whole in zip(call.continuations, wholes, strict=True):
            self._note(call, f"{call.node_id}={text}", pieces, text, whole)
        finished = [each[1] for each in done]
        usage = reduce(add_usage, (end.usage for end in finished))
        last = max(finished, key=lambda end: end.timings.finished_s or 0.0)
        return Scores(scores, replace(last, usage=usage))

    async def warm(self, call: WarmCall) -> Usage | None:
        """Computes a long beginning, behind everything else that is to be done.

        Only where no request waits and free pages abound: a beginning that is evicted before it is
        used, or that evicts what others need, costs more than it saves.
        """
        pieces = self._render(call.prompt, unfinished=True)
        token_ids = self._spell(call, pieces)[:-1]  # the last may merge with what comes next
        sent = self._previous(call)
        if len(token_ids) - (len(sent.token_ids) if sent else 0) < MIN_WARM_LEN:
            return None
        stats = await asyncio.to_thread(self._engine.stats)
        if stats.num_waiting or stats.num_free_pages * stats.page_size < 4 * len(token_ids):
            return None
        ahead = replace(call, priority=call.priority - 1)
        _, finished = await self._score_from(ahead, token_ids, len(token_ids) - 1)
        return finished.usage

    async def count_tokens(self, prompt: Prompt) -> int:
        """The number of tokens that the engine would read."""
        return len(self._engine.tokenizer.encode_pieces(self._render(prompt)))

    async def update_hint(self, update: HintUpdate) -> None:
        """Forwards the update; drops the cached tokens of a run that has ended."""
        if update.has_ended:
            self._sent.pop(update.program_id, None)
        self._engine.update_hint(update)

    async def aclose(self) -> None:
        """The engine is the caller's."""

    def _request(self, call: Call, token_ids: tuple[int, ...], params: SamplingParams) -> Request:
        request = Request(
            prompt_token_ids=token_ids,
            params=params,
            cache_salt=call.cache_salt,
            priority=call.priority,
            hint=call.hint,
        )
        if not isinstance(call, GenerateCall) or call.constraint is None:
            return request
        constraint, landing = _as_served(call.constraint), call.landing
        return replace(request, constraint=constraint, complete=call.complete, landing=landing)

    async def _score_from(
        self, call: Call, token_ids: tuple[int, ...], start: int
    ) -> tuple[tuple[float, ...], Finished]:
        """The log-probabilities of the tokens from index ``start`` on."""
        request = Request(
            prompt_token_ids=token_ids,
            params=SamplingParams(max_tokens=0, prompt_logprobs=0),
            cache_salt=call.cache_salt,
            priority=call.priority,
            hint=call.hint,
            score_from=start,
        )
        scored: Sequence[TokenInfo] = ()
        async with self._engine.submit(request) as events:
            async for event in events:
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, PromptLogprobs):
                    scored = event.tokens[start - event.start :]
                elif isinstance(event, Finished):
                    logprobs = tuple(t.logprob for t in scored if t.logprob is not None)
                    if len(logprobs) != len(token_ids) - start:
                        raise BackendError("the engine scored another number of tokens than asked")
                    return logprobs, event
        raise BackendError("the engine's stream ended before its request did")

    # Prompts.

    def _render(self, prompt: Prompt, *, unfinished: bool = False) -> Pieces:
        if not prompt.is_chat:
            return [(prompt.text, False)] if prompt.text else []
        continues = unfinished or prompt.continues_assistant
        if prompt.functions:
            assert self._turns is not None  # check() has refused it otherwise
            past = [(each.role or "", each.content, each.is_record) for each in prompt.messages]
            printed = self._turns.render(
                past, prompt.functions, prompt.template_variables, continues=continues
            )
            return _merged((piece[0], piece[1]) for piece in printed)
        template = self._engine.chat_template
        assert template is not None  # check() has refused it otherwise
        messages: list[dict[str, Any]] = [
            {"role": message.role, "content": message.content} for message in prompt.messages
        ]
        pieces = template.render(
            messages,
            add_generation_prompt=not continues,
            continue_final_message=continues,
            variables=prompt.template_variables,
        )
        return _merged((piece[0], piece[1]) for piece in pieces)

    async def _encode(
        self, call: Call, tails: Sequence[str] = ()
    ) -> tuple[Pieces, tuple[int, ...], list[tuple[int, ...]]]:
        """The prompt's pieces, its tokens, and its tokens with each of ``tails`` behind it."""

        def encode() -> tuple[Pieces, tuple[int, ...], list[tuple[int, ...]]]:
            pieces = self._render(call.prompt)
            wholes = [self._spell(call, _merged([*pieces, (tail, False)])) for tail in tails]
            return pieces, self._spell(call, pieces), wholes

        prompt_len = sum(len(message.content) for message in call.prompt.messages)
        num_chars = prompt_len * (1 + len(tails)) + sum(map(len, tails))
        return await run_off_loop(encode, is_long=num_chars > INLINE_LEN)

    def _spell(self, call: Call, pieces: Pieces) -> tuple[int, ...]:
        """The text's tokens, which begin with those of the call that the prompt goes on from."""
        tokenizer = self._engine.tokenizer
        sent = self._previous(call)
        rest = None if sent is None else _after(sent.pieces, pieces)
        if sent is not None and rest is not None:
            continues = not tokenizer.is_special(sent.token_ids[-1])
            return sent.token_ids + tuple(tokenizer.encode_pieces(rest, continues=continues))
        ids = tokenizer.encode_pieces(pieces)
        if not call.prompt.is_chat and tokenizer.adds_bos and tokenizer.bos_id is not None:
            ids.insert(0, tokenizer.bos_id)
        if not ids:
            if tokenizer.bos_id is None:
                raise EmptyPromptError("the prompt is empty, and the model has no start token")
            ids = [tokenizer.bos_id]
        return tuple(ids)

    def _previous(self, call: Call) -> _SentPrompt | None:
        previous = call.prompt.previous_call
        if previous is None:
            return None
        sent = self._sent.get(call.program_id, {})
        return sent.get(previous) or sent.get(f"{previous}={call.prompt.previous_text}")

    def _remember(
        self,
        call: GenerateCall,
        pieces: Pieces,
        prompt_ids: tuple[int, ...],
        text: str,
        tokens: list[TokenInfo],
    ) -> None:
        if tokens and tokens[-1].token_id in self._engine.tokenizer.special_ids:
            tokens = tokens[:-1]  # the end of the turn, which the template prints itself
        if b"".join(token.token_bytes for token in tokens) == text.encode():
            ids = prompt_ids + tuple(token.token_id for token in tokens)
            self._note(call, call.node_id, pieces, text, ids)

    def _note(
        self, call: Call, key: str, pieces: Pieces, text: str, token_ids: tuple[int, ...]
    ) -> None:
        sent = self._sent.setdefault(call.program_id, {})
        sent[key] = _SentPrompt(_merged([*pieces, (text, False)]), token_ids)
        if len(self._sent) > MAX_REMEMBERED:
            self._sent.popitem(last=False)


def _as_served(constraint: Constraint) -> Constraint:
    """The constraint that is enforced, narrowed for generation as on a server."""
    if not isinstance(constraint, JsonSchema) or constraint.documents:
        return for_writing(constraint)
    is_compact = constraint.whitespace == "compact"
    return answer_schema(constraint.schema) if is_compact else for_writing(constraint)


def _merged(pieces: Any) -> Pieces:
    merged: Pieces = []
    for text, is_control in pieces:
        if merged and not is_control and not merged[-1][1]:
            merged[-1] = (merged[-1][0] + text, False)
        elif text:
            merged.append((text, is_control))
    return merged


def _after(begin: Pieces, whole: Pieces) -> Pieces | None:
    """What follows ``begin`` in ``whole``, or None if ``whole`` doesn't begin so."""
    if not begin:
        return whole
    last = len(begin) - 1
    if len(whole) <= last or whole[:last] != begin[:last]:
        return None
    text, is_control = begin[last]
    whole_text, whole_is_control = whole[last]
    if is_control != whole_is_control or not whole_text.startswith(text):
        return None
    if is_control and text != whole_text:
        return None
    left = whole_text[len(text) :]
    return ([(left, False)] if left else []) + whole[last + 1 :]
