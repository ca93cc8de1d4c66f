"""How a request's tokens are chosen and when they end."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import biases, flag, number, texts, token_ids, whole

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 8192
MAX_BAD_WORDS = 256
MAX_BAD_WORDS_CHARS = 4096

_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("max_tokens", "min_tokens", "top_k", "seed"), whole),
    **dict.fromkeys(("logprobs", "prompt_logprobs"), whole),
    **dict.fromkeys(("temperature", "top_p", "min_p", "repetition_penalty"), number),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), number),
    **dict.fromkeys(("include_stop_str_in_output", "ignore_eos", "skip_special_tokens"), flag),
    **dict.fromkeys(("stop", "bad_words"), texts),
    **dict.fromkeys(("stop_token_ids", "allowed_token_ids"), token_ids),
    "logit_bias": biases,
}
_OPTIONAL = frozenset(("max_tokens", "seed", "logprobs", "prompt_logprobs", "allowed_token_ids"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """Sampling parameters of one request. Names and meanings are those of the OpenAI API and vLLM.

    A value of another type, or out of its range, is an InvalidParameterError.

    Attributes:
        max_tokens: most tokens to generate; None: what is left of the context; 0: none, which
            only makes sense with ``prompt_logprobs``.
        min_tokens: end-of-text and stop conditions are ignored before this many tokens.
        temperature: 0 is greedy.
        top_p: nucleus sampling (Holtzman et al. 2019), in (0, 1].
        top_k: keep the k likeliest tokens; 0 or -1 keeps all.
        min_p: drop tokens less likely than min_p times the likeliest.
        presence_penalty, frequency_penalty: subtracted from the logits of generated tokens.
        repetition_penalty: divides positive and multiplies negative logits of tokens that the
            prompt or the output has (Keskar et al. 2019); 1 is none, and it is in [0.001, 1000]:
            float32 logits divided by less may be infinite.
        seed: keys the counter-based random numbers; None: one is drawn at admission.
        stop: strings that end the output, or one string; they match raw text, special tokens
            included.
        stop_token_ids: tokens that end the output.
        include_stop_str_in_output: keep the matched stop string in the text.
        ignore_eos: end-of-text does not end the output.
        skip_special_tokens: leave special tokens out of the text.
        logprobs: log-probabilities of the chosen token and this many likeliest ones; None: none.
        prompt_logprobs: the same for the prompt's tokens.
        logit_bias: added to the logits of these tokens.
        allowed_token_ids: only these tokens may be generated.
        bad_words: strings that may not be generated.
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
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is not None or name not in _OPTIONAL:
                object.__setattr__(self, name, check(name, value))
        self._check_range("max_tokens", self.max_tokens, 0, math.inf, optional=True)
        if self.max_tokens == 0 and self.prompt_logprobs is None:
            raise InvalidParameterError(
                "max_tokens may be 0 only to score a prompt (with prompt_logprobs)",
                param="max_tokens",
            )
        self._check_range("min_tokens", self.min_tokens, 0, math.inf)
        self._check_range("temperature", self.temperature, 0, 1e3)
        if not 0 < self.top_p <= 1:
            raise InvalidParameterError("top_p must be in (0, 1]", param="top_p")
        self._check_range("top_k", self.top_k, -1, 2**31 - 1)
        self._check_range("min_p", self.min_p, 0, 1)
        self._check_range("presence_penalty", self.presence_penalty, -2, 2)
        self._check_range("frequency_penalty", self.frequency_penalty, -2, 2)
        self._check_range("repetition_penalty", self.repetition_penalty, 1e-3, 1e3)
        self._check_range("logprobs", self.logprobs, 0, MAX_LOGPROBS, optional=True)
        self._check_range("prompt_logprobs", self.prompt_logprobs, 0, MAX_LOGPROBS, optional=True)
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

    @staticmethod
    def _check_range(
        name: str, value: float | None, low: float, high: float, *, optional: bool = False
    ) -> None:
        if value is None and optional:
            return
        if value is None or not low <= value <= high:
            upper = "" if high == math.inf else f" and at most {high:g}"
            raise InvalidParameterError(
                f"{name} must be at least {low:g}{upper}, not {value!r}", param=name
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> SamplingParams:
        """Builds parameters from named values; an unknown name is refused with a suggestion."""
        names = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise InvalidParameterError(
                    f"unknown sampling parameter {name!r}{hint}",
                    param=name,
                    code="unknown_parameter",
                )
        return cls(**values)
