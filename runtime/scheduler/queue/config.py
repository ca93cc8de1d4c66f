"""Settings of a scheduler: limits of a step and the order of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.settings import Group, check_settings, setting
from ramet.runtime.api.validate import flag, number

POLICY_NAMES = ("fcfs", "longest-prefix", "program-aware", "shortest-remaining", "slack")
"""Names of the scheduling policies; ``policy.POLICIES`` implements them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """Limits and policy of a scheduler. ``InvalidParameterError`` names a field that is wrong.

    Attributes:
        tenant_weights: shares of the tenants; 1 where not named.
        forced_tokens: append tokens that a grammar forces without a step of their own.
    """

    max_num_seqs: int = setting(64, Group.CAPACITY, "Sequences that run concurrently.", least=1)
    # A long prompt delays the others' next token by at most one such step. A CPU is as fast with
    # small steps as with large ones; a GPU wants 2,048 or more.
    max_tokens_per_step: int = setting(
        256, Group.ENGINE, "Most tokens of one step, decode and prefill together.", least=1
    )
    max_logits_per_step: int = setting(
        256, Group.ENGINE, "Most rows of logits of one step.", least=1
    )
    max_waiting: int = setting(
        4096, Group.CAPACITY, "Requests that may queue; more are refused.", least=1
    )
    policy: str = setting(
        "program-aware",
        Group.ENGINE,
        "Order of requests of equal priority.",
        metavar="NAME",
        choices=POLICY_NAMES,
    )
    max_wait_s: float = setting(
        30.0,
        Group.ENGINE,
        "Requests waiting longer than this are served first.",
        option="max_wait",
        metavar="SECONDS",
        least=0,
        finite=False,
    )
    shed_late: bool = setting(
        False,
        Group.ENGINE,
        "With --policy slack, refuse requests (429) whose targets can't be met.",
    )
    tenant_weights: Mapping[str, float] = field(default_factory=dict)
    forced_tokens: bool = True
    # None: some, where the runner's arithmetic doesn't depend on the batch, so that outputs stay
    # the same to the bit, and none elsewhere. See ``draft_budget.draft_lens``.
    max_draft_len: int | None = setting(
        None, Group.ENGINE, "Most draft tokens of a sequence (speculative); 0: none.", least=0
    )

    def __post_init__(self) -> None:
        check_settings(self)
        flag("forced_tokens", self.forced_tokens)
        for name in ("max_tokens_per_step", "max_logits_per_step"):
            if getattr(self, name) < self.max_num_seqs:
                raise InvalidParameterError(
                    f"{name} ({getattr(self, name)}) must be at least max_num_seqs "
                    f"({self.max_num_seqs}): each running sequence needs one a step",
                    param=name,
                )
        if self.shed_late and self.policy != "slack":
            raise InvalidParameterError(
                f"shed_late needs the policy slack, not {self.policy}", param="shed_late"
            )
        weights = self.tenant_weights.items()
        if any(not number(f"the weight of {tenant!r}", weight) > 0 for tenant, weight in weights):
            raise InvalidParameterError("tenant weights must be above 0", param="tenant_weights")
