"""One call to the engine."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.params import SamplingParams

LIKELY_OUTPUT_LEN = 64
"""Expected length of an output whose limit is higher or unknown."""

Pooling = Literal["mean", "last"]
"""The hidden states of an embedding: of all prompt tokens, or of the last one."""

PARAMS_AGAINST_COMPLETION = ("bad_words", "allowed_token_ids")
"""Sampling parameters that could forbid what completes an output."""

DEFAULT_LANDING = 0.5
"""The share of its budget from which on an output lands softly, where no other is named."""

FIRST_COMPLETION_WORK = 6_000
"""Lexeme states that the search for an output's completion may look at before its first token, and
after each token where a complete output was promised: at worst half a second of work."""

AHEAD = " ahead"
"""Ends the ``node_id`` of a request that computes the beginning of a call's prompt ahead of it."""

_request_numbers = itertools.count()


def next_request_id() -> str:
    """A process-wide unique request id."""
    return f"req-{next(_request_numbers)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramHint:
    """A program's knowledge of its future calls, sent with a request.

    Attributes:
        program_id: the run that the request belongs to.
        node_id: the request's node in that run's RequestGraph; with ``AHEAD`` behind it where the
            request only computes ahead of that call.
        steps_to_next_use: how many calls of the program run before one extends this call's
            prompt and output again; None: unknown; 0: the very next.
        remaining_uses: how many later calls extend this prefix; None: unknown; 0: none, so it
            may be evicted immediately.
        critical_path_weight: the share of the program's remaining work that waits for this call,
            in [0, 1].
        tool: the tool whose answer the next call waits for; the prefix stays in memory for as
            long as that tool usually takes. Empty: none.
        program: the program's name: its next run's need of memory is estimated from earlier runs.
            Empty: unknown.
        extends: the node of the call whose prompt and output this prompt begins with. Empty: none.
        tokens_to_come: tokens, of prompts and of outputs, that the program's calls which haven't
            been sent yet will add to those that have, as far as the program knows; an output of
            unknown length counts as ``LIKELY_OUTPUT_LEN``.
    """

    program_id: str
    node_id: str = ""
    steps_to_next_use: int | None = None
    remaining_uses: int | None = None
    critical_path_weight: float = 0.0
    tool: str = ""
    program: str = ""
    extends: str = ""
    tokens_to_come: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HintUpdate:
    """Changes what is known of a program's future calls after they were sent.

    Attributes:
        program_id, cache_salt: those of the program's requests.
        unneeded: nodes whose prompts and outputs no later call will extend, contrary to what
            their hints said or left open.
        has_ended: no call of the program will come any more.
    """

    program_id: str
    cache_salt: str = ""
    unneeded: tuple[str, ...] = ()
    has_ended: bool = False


class GrammarScope(NamedTuple):
    """Where there are tenants, only requests of one scope share compiled constraints."""

    tenant: str = ""
    cache_salt: str = ""


SHARED = GrammarScope()
"""The scope of constraints that no tenant has sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Prompt token ids, and everything that decides how they are continued.

    Attributes:
        prompt_token_ids: at least one id; a list becomes a tuple.
        params: sampling parameters.
        constraint: what the output must match, or None.
        complete: the output ends valid within ``params.max_tokens``: where a token would leave
            too few for any completion, the shortest one is forced. True needs a constraint of
            which completions can be found, and none of ``PARAMS_AGAINST_COMPLETION``; None: where
            these are so.
        stop_anywhere: stop strings and stop tokens end the output also where it isn't valid then;
            otherwise they count, held to a constraint, only where it is.
        landing: the share of ``params.max_tokens`` from which on tokens that close the output gain
            likelihood; in [0, 1), with ``complete`` only. None: they never do.
        cache_salt: prefixes are shared only between requests with the same salt.
        priority: larger runs earlier.
        hint: of the program that sent it, if one did.
        tenant: the tenant whose fair share it is charged to.
        deadline_s: seconds after submission when the request fails if it has not ended.
        ttft_target_s: wanted seconds to the first token, for goodput; under the policy ``slack`` it
            decides the order, and with ``shed_late`` also whether the request is refused.
        tpot_target_s: wanted mean seconds a token after the first, for goodput; under ``slack`` it
            limits the sizes of steps.
        score_from: with ``params.prompt_logprobs``, the first prompt token whose log-probability
            is wanted; the cached prefix before it is reused. None: all but the first token.
        pooling: nothing is generated; the prompt's hidden states become an ``Embedding``. With it,
            ``params`` are the default and there is no constraint.
        request_id: unique; what ``Engine.abort`` takes.
    """

    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    constraint: Constraint | None = None
    complete: bool | None = False
    stop_anywhere: bool = False
    landing: float | None = None
    cache_salt: str = ""
    priority: int = 0
    hint: ProgramHint | None = None
    tenant: str = ""
    deadline_s: float | None = None
    ttft_target_s: float | None = None
    tpot_target_s: float | None = None
    score_from: int | None = None
    pooling: Pooling | None = None
    request_id: str = field(default_factory=next_request_id)

    def __post_init__(self) -> None:
        prompt: Any = self.prompt_token_ids
        if isinstance(prompt, list):
            object.__setattr__(self, "prompt_token_ids", tuple(prompt))

    @property
    def grammar_scope(self) -> GrammarScope:
        """The scope of its constraint."""
        return GrammarScope(self.tenant, self.cache_salt)
