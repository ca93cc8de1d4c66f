"""An engine in this process as a target."""

from __future__ import annotations

import itertools

from ramet.bench.job import Job, Messages, Tokens, is_chat, is_tokens
from ramet.bench.targets.target import Outcome, Stopwatch
from ramet.grammars.constraints.writing import answer_schema
from ramet.lang.base.errors import UsageError
from ramet.runtime.api.errors import RametError
from ramet.runtime.api.events import Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine

_salts = itertools.count()


class EngineTarget:
    """An engine in this process.

    It holds answers to a schema as the server does (``answer_schema``).

    Args:
        use_cache: False: no job shares a prefix with another.
    """

    def __init__(self, engine: Engine, *, use_cache: bool = True) -> None:
        self.name = "engine" if use_cache else "engine, no prefix cache"
        self.engine = engine
        self._use_cache = use_cache

    async def check(self) -> None:
        if self.engine.error is not None:
            raise self.engine.error

    async def send(self, job: Job, prompt: Tokens | Messages, *, want_token_ids: bool) -> Outcome:
        del want_token_ids  # the engine always gives them
        watch = Stopwatch()
        outcome = watch.outcome
        try:
            stream = self.engine.submit(self._request(job, prompt))
        except RametError as refused:
            outcome.error = refused.message
            return watch.end()
        ids: list[int] = []
        async for event in stream:
            match event:
                case Finished(usage=usage):
                    outcome.num_prompt_tokens = usage.prompt_tokens
                    outcome.num_output_tokens = usage.completion_tokens
                    outcome.num_cached_tokens = usage.cached_tokens
                case Failed(error=error):
                    outcome.error = error.message
                case TextDelta(text=text, tokens=tokens):
                    ids += [token.token_id for token in tokens]
                    outcome.text += text
                    watch.piece()
        outcome.output_token_ids = tuple(ids)
        return watch.end()

    async def close(self) -> None:
        pass

    def _request(self, job: Job, prompt: Tokens | Messages) -> Request:
        exact = job.has_exact_length
        return Request(
            prompt_token_ids=self._encode(prompt),
            params=SamplingParams(
                temperature=0.0,
                max_tokens=job.num_output_tokens,
                min_tokens=job.num_output_tokens if exact else 0,
                ignore_eos=exact,
            ),
            constraint=None if job.schema is None else answer_schema(job.schema),
            cache_salt="" if self._use_cache else f"bench-{next(_salts)}",
        )

    def _encode(self, prompt: Tokens | Messages) -> Tokens:
        if is_chat(prompt):
            template = self.engine.chat_template
            if template is None:
                raise UsageError(f"{self.engine.model_name} has no chat template for this load")
            return tuple(template.encode([each._asdict() for each in prompt]))
        assert is_tokens(prompt)
        return prompt
