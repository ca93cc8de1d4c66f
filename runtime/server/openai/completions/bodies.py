"""``POST /v1/completions``: OpenAI's body with vLLM's extensions and Ramet's."""

from __future__ import annotations

from typing import Any, ClassVar

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.protocol.base import Int
from ramet.runtime.server.protocol.shared_fields import (
    NO_EFFECT,
    WARNED,
    AnyPrompt,
    GenerationRequest,
)


class CompletionRequest(GenerationRequest):
    """The body. ``max_tokens`` defaults to the remaining context.

    With ``score_from``, Ramet's own, ``prompt_logprobs`` are those of the prompt's tokens from
    that index on, and what the cache holds of the prompt before it isn't computed again.
    """

    prompt: AnyPrompt
    echo: bool = False
    logprobs: Int | None = None
    add_special_tokens: bool = True
    score_from: Int | None = None

    NO_EFFECT: ClassVar = NO_EFFECT
    UNSUPPORTED: ClassVar = {
        "best_of": (1,),
        "suffix": ("",),
        "use_beam_search": (False,),
        "length_penalty": (1.0,),
        "return_tokens_as_token_ids": (False,),
        "spaces_between_special_tokens": (True,),
        "truncate_prompt_tokens": (),
        "vllm_xargs": ({},),
        "guided_whitespace_pattern": (),
    }
    WARNED: ClassVar = WARNED

    def sampling_values(self) -> dict[str, Any]:
        values = super().sampling_values()
        if self.echo and self.logprobs is not None:
            if self.prompt_logprobs is not None and self.prompt_logprobs < self.logprobs:
                raise InvalidParameterError(
                    "echo with logprobs needs as many prompt_logprobs", param="prompt_logprobs"
                )
            values.setdefault("prompt_logprobs", self.logprobs)
        if self.echo and self.max_tokens == 0:
            values.setdefault("prompt_logprobs", 0)
        return values
