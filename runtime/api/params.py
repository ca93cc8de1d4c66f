"""Sampling parameters: how a request's tokens are chosen, and when its output ends."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import biases, flag, number, texts, token_ids, whole

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 8192
MAX_BAD_WORDS = 256
MAX_BAD_WORDS_CHARS = 4096

ParamKind = Literal["integer", "number", "boolean", "strings", "token_ids", "biases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamSpec:
    """The declaration of one sampling parameter, for programs, the wire and traces.

    Attributes:
        kind: the type of its values. ``number`` parameters are arrays of ``SamplingRows``.
        description: one sentence for API schemas and editors.
        minimum, maximum: the range of a number or integer; ``excludes_minimum`` opens it below.
        api: the API that defines the field: OpenAI's, or vLLM's extensions of it.
        trace_attribute: the attribute of OpenTelemetry's conventions; empty: there is none.
        aliases: other names that programs may use.
    """

    kind: ParamKind
    description: str
    minimum: float = -math.inf
    maximum: float = math.inf
    excludes_minimum: bool = False
    api: Literal["openai", "vllm"] = "vllm"
    trace_attribute: str = ""
    aliases: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> Any:
        """The value in its own type; InvalidParameterError for another type or out of range."""
        checked = _CHECKS[self.kind](name, value)
        if self.kind not in ("integer", "number"):
            return checked
        too_low = checked <= self.minimum if self.excludes_minimum else checked < self.minimum
        if too_low or not checked <= self.maximum:
            least = "above" if self.excludes_minimum else "at least"
            most = "" if self.maximum == math.inf else f" and at most {self.maximum:g}"
            raise InvalidParameterError(
                f"{name} must be {least} {self.minimum:g}{most}, not {checked!r}", param=name
            )
        return checked


_CHECKS: dict[ParamKind, Callable[[str, Any], Any]] = {
    "integer": whole,
    "number": number,
    "boolean": flag,
    "strings": texts,
    "token_ids": token_ids,
    "biases": biases,
}

SAMPLING_PARAMS: Mapping[str, ParamSpec] = {
    "max_tokens": ParamSpec(
        kind="integer",
        description="Most tokens to generate; by default what is left of the context. "
        "0 generates none, which needs `prompt_logprobs`.",
        minimum=0,
        api="openai",
        trace_attribute="gen_ai.request.max_tokens",
        aliases=("max_new_tokens",),
    ),
    "min_tokens": ParamSpec(
        kind="integer",
        description="End-of-text and stop conditions are ignored before this many tokens.",
        minimum=0,
    ),
    "temperature": ParamSpec(
        kind="number",
        description="Divides the logits before sampling; 0 is greedy.",
        minimum=0,
        maximum=1e3,
        api="openai",
        trace_attribute="gen_ai.request.temperature",
    ),
    "top_p": ParamSpec(
        kind="number",
        description="Nucleus sampling (Holtzman et al. 2019): keeps the fewest likeliest tokens "
        "that together have this probability.",
        minimum=0,
        maximum=1,
        excludes_minimum=True,
        api="openai",
        trace_attribute="gen_ai.request.top_p",
    ),
    "top_k": ParamSpec(
        kind="integer",
        description="Keeps the k likeliest tokens; 0 or -1 keeps all.",
        minimum=-1,
        maximum=2**31 - 1,
        trace_attribute="gen_ai.request.top_k",
    ),
    "min_p": ParamSpec(
        kind="number",
        description="Drops tokens less likely than `min_p` times the likeliest.",
        minimum=0,
        maximum=1,
    ),
    "presence_penalty": ParamSpec(
        kind="number",
        description="Subtracted from the logits of tokens that have been generated.",
        minimum=-2,
        maximum=2,
        api="openai",
        trace_attribute="gen_ai.request.presence_penalty",
    ),
    "frequency_penalty": ParamSpec(
        kind="number",
        description="Subtracted from a token's logit each time that it has been generated.",
        minimum=-2,
        maximum=2,
        api="openai",
        trace_attribute="gen_ai.request.frequency_penalty",
    ),
    "repetition_penalty": ParamSpec(
        kind="number",
        description="Divides positive and multiplies negative logits of tokens that the prompt or "
        "the output has (Keskar et al. 2019); 1 is none.",
        minimum=1e-3,  # float32 logits divided by less may be infinite
        maximum=1e3,
    ),
    "seed": ParamSpec(
        kind="integer",
        description="Keys the counter-based random numbers; by default one is drawn at admission.",
        api="openai",
        trace_attribute="gen_ai.request.seed",
    ),
    "stop": ParamSpec(
        kind="strings",
        description="Strings that end the output, or one string; they match raw text, special "
        "tokens included.",
        api="openai",
        trace_attribute="gen_ai.request.stop_sequences",
    ),
    "stop_token_ids": ParamSpec(kind="token_ids", description="Tokens that end the output."),
    "include_stop_str_in_output": ParamSpec(
        kind="boolean", description="Keeps the matched stop string in the text."
    ),
    "ignore_eos": ParamSpec(kind="boolean", description="End-of-text does not end the output."),
    "skip_special_tokens": ParamSpec(
        kind="boolean", description="Leaves special tokens out of the text."
    ),
    "logprobs": ParamSpec(
        kind="integer",
        description="Log-probabilities of the chosen token and of this many likeliest ones; by "
        "default none.",
        minimum=0,
        maximum=MAX_LOGPROBS,
        api="openai",
        aliases=("top_logprobs_num",),
    ),
    "prompt_logprobs": ParamSpec(
        kind="integer",
        description="The same for the prompt's tokens.",
        minimum=0,
        maximum=MAX_LOGPROBS,
    ),
    "logit_bias": ParamSpec(
        kind="biases", description="Added to the logits of these tokens.", api="openai"
    ),
    "allowed_token_ids": ParamSpec(
        kind="token_ids", description="Only these tokens may be generated."
    ),
    "bad_words": ParamSpec(kind="strings", description="Strings that may not be generated."),
}
"""The one list of sampling parameters, in the order of ``SamplingParams``' fields."""

PARAM_ALIASES: Mapping[str, str] = {
    alias: name for name, spec in SAMPLING_PARAMS.items() for alias in spec.aliases
}
"""Other names that programs may use for parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters of one request, with the names of the OpenAI API and vLLM.

    ``SAMPLING_PARAMS`` says what each means. A value of another type, or out of its range, is an
    InvalidParameterError.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: Mapping[int, float] = dataclasses.field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, spec in SAMPLING_PARAMS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, spec.check(name, value))
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise InvalidParameterError(
                "max_tokens may be 0 only to score a prompt (with prompt_logprobs)",
                param="max_tokens",
            )
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidParameterError(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens})",
                param="min_tokens",
            )
        if len(self.stop) > MAX_STOP_STRINGS or any(not s for s in self.stop):
            raise InvalidParameterError(
                f"stop takes at most {MAX_STOP_STRINGS} strings, none of them empty", param="stop"
            )
        if sum(map(len, self.stop)) > MAX_STOP_CHARS:
            raise InvalidParameterError(
                f"the stop strings may have {MAX_STOP_CHARS} characters together", param="stop"
            )
        if len(self.bad_words) > MAX_BAD_WORDS or not all(self.bad_words):
            raise InvalidParameterError(
                f"bad_words takes at most {MAX_BAD_WORDS} strings, none of them empty",
                param="bad_words",
            )
        if sum(map(len, self.bad_words)) > MAX_BAD_WORDS_CHARS:
            raise InvalidParameterError(
                f"bad_words may have {MAX_BAD_WORDS_CHARS} characters together", param="bad_words"
            )
        if self.allowed_token_ids is not None and not self.allowed_token_ids:
            raise InvalidParameterError(
                "allowed_token_ids must name at least one token", param="allowed_token_ids"
            )
        if any(not -100 <= bias <= 100 for bias in self.logit_bias.values()):
            raise InvalidParameterError(
                "logit_bias values must be in [-100, 100]", param="logit_bias"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Builds parameters from named values; an unknown name is refused with a suggestion."""
        for name in values:
            if name not in SAMPLING_PARAMS:
                close = difflib.get_close_matches(name, SAMPLING_PARAMS, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise InvalidParameterError(
                    f"unknown sampling parameter {name!r}{hint}",
                    param=name,
                    code="unknown_parameter",
                )
        return cls(**values)


_OPTIONAL = frozenset(
    field.name for field in dataclasses.fields(SamplingParams) if field.default is None
)
SamplingParams.__doc__ = f"{SamplingParams.__doc__}\n    Attributes:\n" + "\n".join(
    f"        {name}: {spec.description}" for name, spec in SAMPLING_PARAMS.items()
)
