"""What bounds a step, and in which order requests are served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.validate import number, whole
from ramet.runtime.scheduler.queue.policy import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and policy of a scheduler.

    Attributes:
        max_num_seqs: most sequences that run at once.
        max_tokens_per_step: most tokens that one step computes, decode and prefill together; a
            long prompt delays the others' next token by at most one such step. A CPU is as fast
            with small steps as with large ones; a GPU wants 2,048 or more.
        max_logits_per_step: most rows of logits that one step asks for.
        max_waiting: most requests that wait; more are refused with QueueFullError.
        policy: name of the order among equals: see ``policy.POLICIES``.
        max_wait_s: requests that have waited longer go first under any policy.
        tenant_weights: shares of the tenants, 1 where not named.
        forced_tokens: append what a grammar forces without a step of its own.
        max_draft_len: most draft tokens of a sequence (speculative decoding); 0: none; None: some
            where the runner's arithmetic doesn't depend on the batch, so that outputs stay the
            same to the bit, and none elsewhere. ``draft_lens`` decides on each step's number.
    """

    max_num_seqs: int = 64
    max_tokens_per_step: int = 256
    max_logits_per_step: int = 256
    max_waiting: int = 4096
    policy: str = "program-aware"
    max_wait_s: float = 30.0
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    forced_tokens: bool = True
    max_draft_len: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_tokens_per_step", "max_logits_per_step", "max_waiting"):
            if whole(name, getattr(self, name)) < 1:
                raise InvalidParameterError(f"{name} must be at least 1", param=name)
        for name in ("max_tokens_per_step", "max_logits_per_step"):
            if getattr(self, name) < self.max_num_seqs:
                raise InvalidParameterError(
                    f"{name} ({getattr(self, name)}) must be at least max_num_seqs "
                    f"({self.max_num_seqs}): each running sequence needs one a step",
                    param=name,
                )
        if self.policy not in POLICIES:
            raise InvalidParameterError(
                f"unknown policy {self.policy!r}; there are {', '.join(sorted(POLICIES))}",
                param="policy",
            )
        drafts = self.max_draft_len
        if drafts is not None and whole("max_draft_len", drafts) < 0:
            raise InvalidParameterError("max_draft_len must be at least 0", param="max_draft_len")
        if not number("max_wait_s", self.max_wait_s) >= 0:
            raise InvalidParameterError("max_wait_s must be at least 0", param="max_wait_s")
        weights = self.tenant_weights.items()
        if any(not number(f"the weight of {tenant!r}", weight) > 0 for tenant, weight in weights):
            raise InvalidParameterError("tenant weights must be above 0", param="tenant_weights")
