"""Targets of a workload: an in-process engine, or a server with OpenAI's API."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any, Protocol

import httpx

from ramet.bench.workloads import Job
from ramet.grammars.constraints import JsonSchema
from ramet.lang.backends.transport import tls_context
from ramet.runtime.api.errors import RametError
from ramet.runtime.api.events import Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine


@dataclass(slots=True)
class Outcome:
    """The outcome of one job. Times are seconds since it was sent."""

    ttft_s: float = 0.0
    total_s: float = 0.0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    output_token_ids: tuple[int, ...] = ()
    error: str | None = None


class Target(Protocol):
    """Something that can run a job."""

    name: str

    async def send(self, job: Job, prompt: tuple[int, ...], *, want_token_ids: bool) -> Outcome: ...

    async def close(self) -> None: ...


class _Clock:
    """Records when a job's output begins and ends."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.has_begun = False
        self.outcome = Outcome()

    def piece(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            self.outcome.ttft_s = time.perf_counter() - self.start

    def end(self) -> Outcome:
        self.outcome.total_s = time.perf_counter() - self.start
        return self.outcome


class EngineTarget:
    """An engine in this process."""

    def __init__(self, engine: Engine) -> None:
        self.name = "engine"
        self.engine = engine

    async def send(self, job: Job, prompt: tuple[int, ...], *, want_token_ids: bool) -> Outcome:
        del want_token_ids  # they come anyway
        exact = job.schema is None
        request = Request(
            prompt_token_ids=prompt,
            params=SamplingParams(
                temperature=0.0,
                max_tokens=job.num_output_tokens,
                min_tokens=job.num_output_tokens if exact else 0,
                ignore_eos=exact,
            ),
            constraint=None if job.schema is None else JsonSchema(job.schema),
        )
        clock = _Clock()
        ids: list[int] = []
        try:
            stream = self.engine.submit(request)
        except RametError as refused:
            clock.outcome.error = refused.message
            return clock.end()
        async for event in stream:
            match event:
                case Finished(usage=usage):
                    clock.outcome.num_prompt_tokens = usage.prompt_tokens
                    clock.outcome.num_output_tokens = usage.completion_tokens
                    clock.outcome.num_cached_tokens = usage.cached_tokens
                case Failed(error=error):
                    clock.outcome.error = error.message
                case TextDelta(tokens=tokens):
                    ids += [token.token_id for token in tokens]
                    clock.piece()
        clock.outcome.output_token_ids = tuple(ids)
        return clock.end()

    async def close(self) -> None:
        pass


class UrlTarget:
    """A server with OpenAI's completions API."""

    def __init__(self, url: str, model: str, *, timeout_s: float = 600.0) -> None:
        self.name = url
        self.model = model
        limits = httpx.Limits(max_connections=1024)
        self.client = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            limits=limits,
            verify=tls_context(url, verify=True),
            trust_env=False,
        )

    async def send(self, job: Job, prompt: tuple[int, ...], *, want_token_ids: bool) -> Outcome:
        body: dict[str, Any] = {
            "model": self.model,
            "prompt": list(prompt),
            "max_tokens": job.num_output_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if job.schema is None:
            body |= {"min_tokens": job.num_output_tokens, "ignore_eos": True}
        else:
            body["response_format"] = {
                "type": "json_schema",
                "json_schema": {"name": "bench", "strict": True, "schema": job.schema},
            }
        if want_token_ids:
            body["return_token_ids"] = True
        clock = _Clock()
        try:
            async with self.client.stream("POST", "/v1/completions", json=body) as response:
                if response.status_code != 200:
                    text = (await response.aread()).decode("utf-8", "replace")
                    clock.outcome.error = f"{response.status_code} {text[:300]}"
                    return clock.end()
                async for line in response.aiter_lines():
                    if line.startswith("data:") and line != "data: [DONE]":
                        self._note(json.loads(line[5:]), clock)
        except httpx.HTTPError as error:
            clock.outcome.error = f"{type(error).__name__}: {error}"
        outcome = clock.end()
        if outcome.error is None:
            outcome.error = self._shortfall(job, outcome, want_token_ids)
        return outcome

    @staticmethod
    def _shortfall(job: Job, outcome: Outcome, want_token_ids: bool) -> str | None:
        """Why an answer doesn't measure the job: work that was skipped or not counted."""
        num_tokens = outcome.num_output_tokens
        if outcome.num_prompt_tokens == 0:
            return "the server's stream ended without usage"
        if job.schema is None and num_tokens != job.num_output_tokens:
            return f"the server gave {num_tokens} tokens, not the {job.num_output_tokens} asked for"
        if want_token_ids and not outcome.output_token_ids:
            return "the server returned no token ids"
        return None

    @staticmethod
    def _note(chunk: dict[str, Any], clock: _Clock) -> None:
        if "error" in chunk:
            clock.outcome.error = str(chunk["error"])[:300]
        if usage := chunk.get("usage"):
            details = usage.get("prompt_tokens_details") or {}
            clock.outcome.num_prompt_tokens = usage["prompt_tokens"]
            clock.outcome.num_output_tokens = usage["completion_tokens"]
            clock.outcome.num_cached_tokens = details.get("cached_tokens") or 0
        for choice in chunk.get("choices") or ():
            clock.outcome.output_token_ids += tuple(choice.get("token_ids") or ())
            clock.piece()

    async def close(self) -> None:
        await self.client.aclose()
