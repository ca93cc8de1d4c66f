"""Programs on a server: Ramet's own, one with vLLM's extensions, or any with OpenAI's API."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
from collections.abc import AsyncIterator
from functools import reduce
from typing import TYPE_CHECKING, Any

from ramet.lang.backends.base import (
    Call,
    CallPlace,
    ContinuationScore,
    GenerateCall,
    Message,
    Prompt,
    ScoreCall,
    Scores,
    WarmCall,
    shared_len,
)
from ramet.lang.backends.dialects import DIALECTS, OPENAI, Dialect
from ramet.lang.base.errors import BackendError, UnsupportedError, UsageError
from ramet.lang.graph.nodes import Gen, Role, Select
from ramet.lang.types.values import add_usage
from ramet.runtime.api.events import Finished, TextDelta, Timings, TokenInfo, Usage
from ramet.runtime.api.names import nearest, suggests_names
from ramet.runtime.api.request import HintUpdate, ProgramHint

if TYPE_CHECKING:
    import ssl

    from ramet.lang.backends.transport import Transport, Verify

HINT_UPDATES_PATH = "/v1/hint_updates"
"""Path at which a Ramet server takes hint updates."""


class HttpBackend:
    """Sends calls to a server. ``connect`` makes one; ``dialect`` is what the server's API has.

    What the server's API can't express raises UnsupportedError before the call is made.
    """

    def __init__(self, transport: Transport, dialect: Dialect, model: str | None = None) -> None:
        self._transport = transport
        self._dialect = dialect
        self._model = model
        self._first: list[int] | None = None
        self._hinted: set[str] = set()  # runs that have sent hints, and go on

    @property
    def name(self) -> str:
        """The kind of server, and where it is."""
        return f"{self._dialect.name}:{self._transport.url}"

    def check(self, node: Gen | Select, place: CallPlace) -> None:
        """Refuses what the API can't express."""
        if isinstance(node, Gen) and node.agent_turn is not None:
            raise UnsupportedError(self.name, "turn of an agent loop", node.id)
        self._dialect.check(self.name, node, place)

    async def stream(self, call: GenerateCall) -> AsyncIterator[TextDelta | Finished]:
        """The call's text as the server sends it."""
        is_chat = call.prompt.is_chat
        body = await self._body(call)
        body |= self._dialect.sampling_fields(call, is_chat=is_chat)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if self._dialect.completes and call.constraint is not None and call.complete is not False:
            own = {"complete": call.complete or "if_possible", "landing": call.landing}
            body["ramet"] = {**body.get("ramet", {}), **own}
        if call.constraint is not None:
            body |= self._dialect.constraint_fields(self.name, call.constraint, call.node_id)
        if is_chat:
            body["messages"] = _chat_messages(call.prompt)
            body |= self._template_fields(call.prompt, call.node_id)
            if call.prompt.continues_assistant:
                body |= {"continue_final_message": True, "add_generation_prompt": False}
        else:
            body["prompt"] = call.prompt.text
        path = "/v1/chat/completions" if is_chat else "/v1/completions"
        reason: str | None = None
        usage = Usage()
        events = self._transport.events(path, body)
        try:
            async for event in events:
                usage = _usage(event.get("usage")) or usage
                for choice in event.get("choices", ()):
                    reason = choice.get("finish_reason") or reason
                    delta = _delta(choice, is_chat=is_chat)
                    if delta is not None:
                        yield delta
        finally:
            await events.aclose()  # type: ignore[attr-defined]
        if reason not in ("stop", "length"):
            raise BackendError(f"the server ended the call with finish_reason {reason!r}")
        yield Finished("stop" if reason == "stop" else "length", usage, Timings())

    async def score(self, call: ScoreCall) -> Scores:
        """Log-probabilities of the continuations."""
        if self._dialect.scoring == "tokens":
            return await self._score_tokens(call)
        return await self._score_echo(call)

    async def warm(self, call: WarmCall) -> Usage | None:
        """Servers are sent no calls but the program's own."""
        del call
        return None

    async def count_tokens(self, prompt: Prompt) -> int | None:
        """The number of tokens, where the server has a route for that."""
        if self._dialect.scoring != "tokens":
            return None
        return len(await self._tokenize(prompt))

    async def update_hint(self, update: HintUpdate) -> None:
        """Posts the update to a Ramet server; one that can't be reached keeps prefixes longer."""
        if self._dialect.hints and update.program_id in self._hinted:
            if update.has_ended:
                self._hinted.discard(update.program_id)
            with contextlib.suppress(BackendError):
                await self._transport.post(HINT_UPDATES_PATH, dataclasses.asdict(update))

    async def aclose(self) -> None:
        """Closes the running loop's connections."""
        await self._transport.aclose()

    async def _body(self, call: Call) -> dict[str, Any]:
        """The fields that every call has."""
        dialect = self._dialect
        body: dict[str, Any] = {"model": await self._model_name()}
        if call.cache_salt:
            if not dialect.salts:
                raise UnsupportedError(self.name, "cache_salt", call.node_id)
            body["cache_salt"] = call.cache_salt
        if call.priority:
            if not dialect.priorities:
                raise UnsupportedError(self.name, "priority", call.node_id)
            body["priority"] = call.priority
        if dialect.hints and call.hint is not None:
            body["ramet"] = _given(call.hint)
            self._hinted.add(call.program_id)
        return body

    def _template_fields(self, prompt: Prompt, node_id: str = "") -> dict[str, Any]:
        if not prompt.template_variables:
            return {}
        if not self._dialect.template_variables:
            raise UnsupportedError(self.name, "chat_template_kwargs", node_id)
        return {"chat_template_kwargs": dict(prompt.template_variables)}

    async def _model_name(self) -> str:
        if self._model is None:
            models = (await self._transport.get("/v1/models")).get("data") or []
            if not models:
                raise BackendError(f"{self._transport.url} serves no model")
            self._model = str(models[0]["id"])
        return self._model

    async def _tokenize(self, prompt: Prompt) -> list[int]:
        return list((await self._post_tokenize(prompt))["tokens"])

    async def _post_tokenize(self, prompt: Prompt) -> dict[str, Any]:
        body: dict[str, Any] = {"model": await self._model_name()}
        if prompt.is_chat:
            continues = prompt.continues_assistant
            body["messages"] = _chat_messages(prompt)
            body |= self._template_fields(prompt)
            body |= {"add_generation_prompt": not continues, "continue_final_message": continues}
        else:
            body["prompt"] = prompt.text
        answer: dict[str, Any] = await self._transport.post("/tokenize", body)
        return answer

    async def _score_tokens(self, call: ScoreCall) -> Scores:
        prompts = [call.prompt, *(_extended(call.prompt, text) for text in call.continuations)]
        begin, *wholes = await asyncio.gather(*map(self._tokenize, prompts))
        start = shared_len([begin, *wholes])
        first = await self._first_token() if call.unconditional or start == 0 else []
        if start == 0:  # nothing is before them, so the first tokens need one to follow
            wholes = [[*first, *whole] for whole in wholes]
            start = len(first)

        async def score(whole: list[int]) -> tuple[ContinuationScore, Usage]:
            ids = whole[start:]
            logprobs, used = await self._logprobs(call, whole[:start], ids)
            free: tuple[float, ...] = ()
            if call.unconditional:
                free, _ = await self._logprobs(call, first, ids)
            return ContinuationScore(tuple(ids), logprobs, free), used

        scored = await asyncio.gather(*map(score, wholes))
        usage = reduce(add_usage, (used for _, used in scored))
        return Scores(tuple(each for each, _ in scored), Finished("stop", usage, Timings()))

    async def _first_token(self) -> list[int]:
        """The token after which a text is scored that nothing precedes; empty: none is known.

        Without one the text's first token has no probability, and counts as certain, as in the
        language model evaluation harness.
        """
        if self._first is None:
            answer = await self._post_tokenize(Prompt(()))
            known = answer.get("begin_token_id")
            self._first = [known] if known is not None else list(answer["tokens"])[:1]
        return self._first

    async def _logprobs(
        self, call: ScoreCall, begin: list[int], ids: list[int]
    ) -> tuple[tuple[float, ...], Usage]:
        body = await self._body(call)
        body |= {
            "prompt": begin + ids,
            "max_tokens": self._dialect.min_max_tokens,
            "prompt_logprobs": 0,
            "temperature": 0,
        }
        if self._dialect.score_from and begin:
            body["score_from"] = len(begin)
        answer = await self._transport.post("/v1/completions", body)
        entries = answer["choices"][0].get("prompt_logprobs") or []
        if len(entries) not in (len(ids), len(begin) + len(ids)):
            raise BackendError("the server scored another number of tokens than it was given")
        logprobs = tuple(
            0.0 if entry is None else float(entry[str(token_id)]["logprob"])
            for entry, token_id in zip(entries[-len(ids) :], ids, strict=True)
        )
        return logprobs, _usage(answer.get("usage")) or Usage()

    async def _score_echo(self, call: ScoreCall) -> Scores:
        scores: list[ContinuationScore] = []
        usage = Usage()
        for text in call.continuations:
            logprobs, used = await self._echo(call, call.prompt.text, text)
            free: tuple[float, ...] = ()
            if call.unconditional:
                free, _ = await self._echo(call, "", text)
                if len(free) != len(logprobs):
                    raise BackendError("the server splits a choice differently after nothing")
            scores.append(ContinuationScore((), logprobs, free))
            usage = add_usage(usage, used)
        return Scores(tuple(scores), Finished("stop", usage, Timings()))

    async def _echo(
        self, call: ScoreCall, before: str, text: str
    ) -> tuple[tuple[float, ...], Usage]:
        body = await self._body(call)
        body |= {"prompt": before + text, "max_tokens": 0, "echo": True, "logprobs": 0}
        answer = await self._transport.post("/v1/completions", body)
        listed = answer["choices"][0].get("logprobs") or {}
        offsets, values = listed.get("text_offset"), listed.get("token_logprobs")
        if not offsets or not values or len(offsets) != len(values):
            raise UnsupportedError(self.name, "log-probabilities of given text", call.node_id)
        logprobs = tuple(
            0.0 if value is None else float(value)
            for offset, value in zip(offsets, values, strict=True)
            if offset >= len(before)
        )
        return logprobs, _usage(answer.get("usage")) or Usage()


@suggests_names
def connect(
    url: str,
    *,
    model: str | None = None,
    api_key: str | None = None,
    dialect: str | None = None,
    timeout_s: float | None = 600.0,
    verify: Verify = True,
) -> HttpBackend:
    """A backend for the server at ``url`` (with or without a ``/v1`` at its end).

    Args:
        model: None: the first that the server lists.
        api_key: sent as a bearer token.
        dialect: ``ramet``, ``vllm`` or ``openai``; None: the server is asked.
        timeout_s: for a call's next piece of data.
        verify: how the certificate of an https server is verified: True: against the trusted
            certificates, those of the environment's ``SSL_CERT_FILE`` if it is set; a file of
            certificates, or an ``ssl.SSLContext``; False: not at all.

    Raises:
        UsageError: an argument is wrong.
        BackendError: the server can't be reached.
    """
    # An HTTP client is slow to import, and only connections need one.
    from ramet.lang.backends.transport import Transport, tls_context

    if not isinstance(url, str) or not url.startswith(("http://", "https://")):
        advice = f"; add http://: {f'http://{url}'!r}" if isinstance(url, str) and url else ""
        raise UsageError(f"not an address of a server: {url!r}{advice}")
    url = url.rstrip("/").removesuffix("/v1")
    if dialect is not None and dialect not in DIALECTS:
        hint = nearest(dialect, DIALECTS)
        raise UsageError(f"no dialect {dialect!r}; there are {', '.join(DIALECTS)}{hint}")
    context = tls_context(url, verify)
    chosen = DIALECTS[dialect] if dialect is not None else _recognise(url, api_key, context)
    transport = Transport(url, api_key=api_key, timeout_s=timeout_s, verify=context)
    return HttpBackend(transport, chosen, model)


def _recognise(url: str, api_key: str | None, verify: ssl.SSLContext | bool) -> Dialect:
    import httpx

    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        response = httpx.get(f"{url}/v1/models", headers=headers, timeout=10.0, verify=verify)
        response.raise_for_status()
        owners = {str(model.get("owned_by")) for model in response.json()["data"]}
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackendError(f"{url} is not a server that lists its models: {error}") from error
    return next((DIALECTS[owner] for owner in owners if owner in DIALECTS), OPENAI)


def _extended(prompt: Prompt, text: str) -> Prompt:
    """The prompt continued by ``text``, as the assistant's or as raw text."""
    if prompt.continues_assistant or (prompt.messages and not prompt.is_chat):
        last = prompt.messages[-1]
        extended = dataclasses.replace(last, content=last.content + text)
        messages = (*prompt.messages[:-1], extended)
    else:
        role: Role | None = "assistant" if prompt.is_chat else None
        messages = (*prompt.messages, Message(role, text))
    return Prompt(messages, template_variables=prompt.template_variables)


def _chat_messages(prompt: Prompt) -> list[dict[str, Any]]:
    return [{"role": message.role, "content": message.content} for message in prompt.messages]


def _given(hint: ProgramHint) -> dict[str, Any]:
    """The hint's fields that aren't unknown."""
    return {
        field.name: value
        for field in dataclasses.fields(hint)
        if (value := getattr(hint, field.name)) != field.default
    }


def _usage(data: dict[str, Any] | None) -> Usage | None:
    if not data:
        return None
    details = data.get("prompt_tokens_details") or {}
    return Usage(
        prompt_tokens=int(data.get("prompt_tokens") or 0),
        completion_tokens=int(data.get("completion_tokens") or 0),
        cached_tokens=int(details.get("cached_tokens") or 0),
    )


def _delta(choice: dict[str, Any], *, is_chat: bool) -> TextDelta | None:
    if is_chat:
        delta = choice.get("delta") or {}
        if delta.get("tool_calls"):
            raise BackendError("the server answered with a tool call that was not asked for")
        text = delta.get("content") or ""
        entries = (choice.get("logprobs") or {}).get("content") or ()
        tokens = tuple(
            TokenInfo(-1, bytes(entry.get("bytes") or entry["token"].encode()), entry["logprob"])
            for entry in entries
        )
    else:
        text = choice.get("text") or ""
        listed = choice.get("logprobs") or {}
        pairs = zip(listed.get("tokens") or (), listed.get("token_logprobs") or (), strict=False)
        tokens = tuple(
            TokenInfo(-1, token.encode(), value if value is not None else math.nan)
            for token, value in pairs
        )
    return TextDelta(text, tokens) if text or tokens else None
