"""A server with OpenAI's API as a target."""

from __future__ import annotations

import json
import uuid
from typing import Any, Literal

import httpx

from ramet.bench.job import Job, Messages, Tokens, is_chat
from ramet.bench.targets.target import Outcome, Stopwatch
from ramet.lang.backends.transport import tls_context
from ramet.lang.base.errors import UsageError

Endpoint = Literal["completions", "chat"]

_CHECK_TIMEOUT_S = 10.0
_MAX_ERROR_LEN = 300


class ServerTarget:
    """A server with OpenAI's API.

    Args:
        url: its address, with or without ``/v1``.
        model: the model's name; None: the first that it lists.
        endpoint: where chats are sent; token ids always go to completions. None: chat for chats.
            With completions, messages are printed plainly, without a chat template.
        use_cache: False: each request has a cache salt of its own (``cache_salt``, which Ramet and
            vLLM know), so that none shares a prefix with another.

    Raises:
        UsageError: ``url`` isn't an address of HTTP.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        endpoint: Endpoint | None = None,
        api_key: str | None = None,
        use_cache: bool = True,
        timeout_s: float = 600.0,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"{url!r} is not the address of a server: try http://{url}")
        url = url.rstrip("/").removesuffix("/v1")
        self.name = url if use_cache else f"{url}, no prefix cache"
        self.model = model
        self._endpoint = endpoint
        self._use_cache = use_cache
        self.client = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            limits=httpx.Limits(max_connections=1024),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            verify=tls_context(url, verify=True),
            trust_env=False,
        )

    async def check(self) -> None:
        """Asks for the list of models: a server that doesn't answer it runs no load."""
        try:
            answer = await self.client.get("/v1/models", timeout=_CHECK_TIMEOUT_S)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise UsageError(f"no server answers at {self.client.base_url}: {reason}") from None
        if answer.status_code != 200:
            text = answer.text[:_MAX_ERROR_LEN]
            raise UsageError(f"{self.client.base_url}: /v1/models: {answer.status_code} {text}")
        if self.model is None:
            try:
                self.model = answer.json()["data"][0]["id"]
            except (ValueError, LookupError, TypeError):
                raise UsageError(f"{self.client.base_url} lists no model; give its name") from None

    async def send(self, job: Job, prompt: Tokens | Messages, *, want_token_ids: bool) -> Outcome:
        path, body = self._request(job, prompt)
        if want_token_ids and not is_chat(prompt):
            body["return_token_ids"] = True
        watch = Stopwatch()
        outcome = watch.outcome
        try:
            async with self.client.stream("POST", path, json=body) as response:
                if response.status_code != 200:
                    text = (await response.aread()).decode("utf-8", "replace")
                    outcome.error = f"{response.status_code} {text[:_MAX_ERROR_LEN]}"
                    return watch.end()
                async for line in response.aiter_lines():
                    if line.startswith("data:") and line[5:].strip() != "[DONE]":
                        _note(json.loads(line[5:]), watch)
        except (httpx.HTTPError, ValueError) as error:
            outcome.error = f"{type(error).__name__}: {error}"
        watch.end()
        if outcome.error is None:
            outcome.error = _shortfall(job, outcome, "return_token_ids" in body)
        return outcome

    async def close(self) -> None:
        await self.client.aclose()

    def _request(self, job: Job, prompt: Tokens | Messages) -> tuple[str, dict[str, Any]]:
        """The path and the body of a job's request."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": job.num_output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if job.has_exact_length:
            body |= {"min_tokens": job.num_output_tokens, "ignore_eos": True}
        if job.schema is not None:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "bench", "strict": True, "schema": job.schema},
            }
        if not self._use_cache:
            body["cache_salt"] = uuid.uuid4().hex
        if not is_chat(prompt):
            return "/v1/completions", {**body, "prompt": list(prompt)}
        if self._endpoint == "completions":
            return "/v1/completions", {**body, "prompt": _plainly(prompt)}
        messages = [each._asdict() for each in prompt]
        return "/v1/chat/completions", {**body, "messages": messages}


def _plainly(prompt: Messages) -> str:
    """Messages as a text that any model continues."""
    turns = (f"{each.role.capitalize()}: {each.content}\n\n" for each in prompt)
    return "".join(turns) + "Assistant:"


def _shortfall(job: Job, outcome: Outcome, want_token_ids: bool) -> str | None:
    """Why an answer doesn't measure the job: work that was skipped or not counted."""
    if outcome.num_prompt_tokens == 0:
        return "the server's stream ended without usage"
    if job.has_exact_length and outcome.num_output_tokens != job.num_output_tokens:
        return (
            f"the server gave {outcome.num_output_tokens} tokens, not the "
            f"{job.num_output_tokens} asked for"
        )
    if want_token_ids and not outcome.output_token_ids:
        return "the server returned no token ids"
    return None


def _note(chunk: dict[str, Any], watch: Stopwatch) -> None:
    outcome = watch.outcome
    if "error" in chunk:
        outcome.error = str(chunk["error"])[:_MAX_ERROR_LEN]
    if usage := chunk.get("usage"):
        details = usage.get("prompt_tokens_details") or {}
        outcome.num_prompt_tokens = usage["prompt_tokens"]
        outcome.num_output_tokens = usage["completion_tokens"]
        outcome.num_cached_tokens = details.get("cached_tokens") or 0
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        text = choice.get("text") or delta.get("content") or ""
        reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
        outcome.output_token_ids += tuple(choice.get("token_ids") or ())
        outcome.text += text
        # A first chunk with nothing but the role is no output.
        if "text" in choice or text or reasoning or choice.get("token_ids"):
            watch.piece()
