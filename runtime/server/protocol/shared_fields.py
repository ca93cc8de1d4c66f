"""Fields that the bodies of several APIs share."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, WithJsonSchema, model_validator

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.request import DEFAULT_LANDING, ProgramHint
from ramet.runtime.api.validate import only_ints
from ramet.runtime.server.protocol.base import ApiModel, Int
from ramet.runtime.server.protocol.response_format import ConstraintFields
from ramet.runtime.server.protocol.sampling import CommonSampling, SamplingFields

NO_EFFECT = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "store",
        "user",
    }
)
"""OpenAI's fields that label or store a request, or configure a cache that is always on here;
none can change the answer."""


NOTHING_CLEARED = "the conversation is taken as it was sent"
_SCHEDULING = "calls are scheduled by priority and deadline_s"

WARNED = {
    "client_metadata": "a label of the client",
    "guided_decoding_backend": "there is one backend",
    "inference_geo": "there is one place of inference",
    "kv_transfer_params": "the cache is the server's own",
    "service_tier": _SCHEDULING,
    "snippy": "answers aren't compared with published code",
    "speed": _SCHEDULING,
    "verbosity": "this model has no levels of verbosity",
}
"""Fields of OpenAI's and other APIs that can't change what this server's models answer."""


NO_PADDING = {"include_obfuscation": "streams aren't padded against traffic analysis"}


class StreamOptions(ApiModel):
    """``stream_options``: a usage chunk at the end, or usage so far on every chunk."""

    include_usage: bool = False
    continuous_usage_stats: bool = False

    UNSUPPORTED: ClassVar = {"include_obfuscation": (False,)}
    WARNED: ClassVar = NO_PADDING
    PATH: ClassVar = "stream_options"


class RametFields(ApiModel):
    """The ``ramet`` object: what the program that sends the request knows of the future, and
    how the output ends: valid within ``max_tokens`` (see ``Request.complete``), and softly (see
    ``Request.landing``; true is half of the budget)."""

    complete: Literal[True, False, "if_possible"] = False
    landing: bool | Annotated[float, Field(ge=0, lt=1)] | None = None
    program_id: str | None = None
    node_id: str | None = None
    steps_to_next_use: Int | None = Field(default=None, ge=0, le=10**9)
    remaining_uses: Int | None = Field(default=None, ge=0, le=10**9)
    critical_path_weight: float | None = Field(default=None, ge=0, le=1)
    tool: str | None = Field(default=None, max_length=256)
    program: str | None = Field(default=None, max_length=256)
    extends: str | None = None
    tokens_to_come: Int | None = Field(default=None, ge=0, le=10**9)

    @model_validator(mode="after")
    def _hints_have_a_program(self) -> Self:
        hints = self.model_fields_set - {"complete", "landing", "program_id"}
        if self.program_id is None and hints:
            raise ValueError(f"{min(hints)} needs program_id")
        return self

    @property
    def landing_share(self) -> float | None:
        """``Request.landing``; None: the output isn't to land softly."""
        return DEFAULT_LANDING if self.landing is True else self.landing or None

    def hint(self) -> ProgramHint | None:
        """The hint as the client means it; None if there is none."""
        if self.program_id is None:
            return None
        return ProgramHint(**self.model_dump(exclude_none=True, exclude={"complete", "landing"}))


class EngineFields(ApiModel):
    """Ramet's and vLLM's fields of every API: how the engine treats the requests of a call."""

    cache_salt: str | None = None
    priority: Int = Field(default=0, ge=-(2**31), le=2**31 - 1)
    deadline_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    ttft_target_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    tpot_target_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    ramet: RametFields | None = None

    @property
    def num_choices(self) -> int:
        """Number of choices for each prompt."""
        return 1


class CallFields(CommonSampling, EngineFields):
    """Fields of every generating API: the model and how the answer is sent."""

    model: str | None = None
    stream: bool = False


class GenerationRequest(SamplingFields, ConstraintFields, CallFields):
    """Fields that chat and completions share."""

    stream_options: StreamOptions | None = None
    return_token_ids: bool = False
    request_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9._-]{1,128}$")

    @property
    def num_choices(self) -> int:
        return self.n

    def usage_options(self) -> StreamOptions:
        """Returns the stream options; refuses them without streaming."""
        if self.stream_options is None:
            return StreamOptions()
        if not self.stream:
            raise InvalidParameterError(
                "stream_options is only allowed with stream: true", param="stream_options"
            )
        return self.stream_options


AnyPrompt = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "array", "items": {"type": "integer"}},
                {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
            ]
        }
    ),
]
"""Text, a list of texts, token ids, or a list of token-id lists; texts and id lists may mix."""


def split_prompts(prompt: Any, *, param: str = "prompt") -> list[str | list[int]]:
    """Splits a prompt field into prompts; ``param`` is the field's name.

    Raises:
        InvalidParameterError: ``prompt`` is none of the shapes of ``AnyPrompt``.
    """
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if only_ints(prompt):
            return [prompt]
        for index, item in enumerate(prompt):
            ids = isinstance(item, list) and only_ints(item)
            if not isinstance(item, str) and not ids:
                raise InvalidParameterError(
                    f"{param}[{index}] is neither text nor a list of token ids",
                    param=f"{param}[{index}]",
                )
        return prompt
    raise InvalidParameterError(
        f"{param} must be text, token ids, or a list with at least one of either", param=param
    )
