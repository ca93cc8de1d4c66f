"""Events of a request, in order: text deltas, then one terminal event."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ramet.runtime.api.batch import Float32Array
from ramet.runtime.api.errors import RametError

FinishReason = Literal["stop", "length"]
TokenOrigin = Literal["sampled", "forced", "drafted"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its raw bytes and log-probability (natural logarithm)."""

    token_id: int
    token_bytes: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A generated token. All but its id and bytes is set only where log-probabilities are wanted.

    Attributes:
        origin: how it came: sampled, forced by the grammar without a step, or drafted and accepted.
        num_allowed: tokens that the grammar allowed in its place; None: any, or unknown.

    The last two say how an output came about, which may differ between equal outputs: they aren't
    compared.
    """

    token_id: int
    token_bytes: bytes
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    origin: TokenOrigin = field(default="sampled", compare=False)
    num_allowed: int | None = field(default=None, compare=False)

    def __reduce__(self) -> tuple[type[TokenInfo], tuple[object, ...]]:
        # One a token crosses processes: a dataclass with slots would look its fields up each time.
        values = (self.token_id, self.token_bytes, self.logprob, self.top_logprobs)
        if self.logprob is None:
            return TokenInfo, values
        return TokenInfo, (*values, self.origin, self.num_allowed)


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request.

    Attributes:
        cached_tokens: of the prompt, those that came from the prefix cache.
        forced_tokens: of the output, those that the grammar forced, without a sampling step.
        completion_forced_tokens: of these, those that completed the output within its budget.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    completion_forced_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds since the request was submitted, by the monotonic clock; None: not reached."""

    scheduled_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    grammar_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New text, and the tokens generated since the last event.

    The tokens' bytes may reach further than ``text``, which holds back a possible stop string or an
    incomplete UTF-8 character.
    """

    text: str
    tokens: tuple[TokenInfo, ...] = ()

    def __reduce__(self) -> tuple[type[TextDelta], tuple[object, ...]]:
        return TextDelta, (self.text, self.tokens)


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """Log-probabilities of the prompt's tokens from index ``start``; the first of all has none."""

    tokens: tuple[TokenInfo, ...]
    start: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The prompt as a vector of length 1, float32 [hidden_size]."""

    vector: Float32Array


@dataclass(frozen=True, slots=True)
class Finished:
    """The request has completed; ``matched_stop`` is the stop string or token id that ended it."""

    reason: FinishReason
    usage: Usage
    timings: Timings
    matched_stop: str | int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request has ended with an error: refused, aborted, timed out, or an engine fault."""

    error: RametError
    usage: Usage


Event = TextDelta | PromptLogprobs | Embedding | Finished | Failed
