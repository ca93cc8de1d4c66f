"""Scheduling order: a policy gives each sequence a key; the smallest is served first.

Above any policy count, in this order: overdue sequences, the request's priority, preempted
sequences, and the tenant's fair share. Below it, the order of arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.queue.service_levels import ServiceLevels
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState

_MAX_PROGRAMS = 8192
_MAX_IDLE_TENANTS = 4096

Rank = tuple[bool, int, bool, float, float, int]
"""(not overdue, -priority, not preempted, tenant's counter, the policy's key, arrival)"""


class Policy(Protocol):
    """An order among sequences of equal priority and tenant."""

    def key(self, sequence: Sequence) -> float:
        """A sequence's key; smaller keys are served first."""
        ...

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        """A step computes this many of the sequence's tokens."""
        ...

    def finish(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        ...


class FirstCome:
    """In order of arrival."""

    def key(self, sequence: Sequence) -> float:
        return sequence.arrival

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        pass

    def finish(self, sequence: Sequence) -> None:
        pass


class LongestPrefix(FirstCome):
    """Longest cached prefix first, so that it is used before it is evicted.

    A sequence's cached prefix is looked up again only after ``refresh`` calls of ``key``.
    """

    def __init__(self, cache: RadixCache, refresh: int = 16) -> None:
        self._cache = cache
        self._refresh = refresh
        self._known: dict[Sequence, tuple[int, int]] = {}  # cached length, uses left

    def key(self, sequence: Sequence) -> float:
        if sequence.held is not None:
            return -sequence.num_tokens
        length, uses = self._known.get(sequence, (0, 0))
        if not uses:
            wanted = sequence.token_ids[: max(sequence.reusable_len, 0)]
            length = self._cache.match(wanted, sequence.request.cache_salt).matched_len
            uses = self._refresh
        self._known[sequence] = length, uses - 1
        return -length

    def finish(self, sequence: Sequence) -> None:
        self._known.pop(sequence, None)


class ShortestRemaining(FirstCome):
    """Fewest tokens left first: prompt tokens to compute and output tokens that are allowed."""

    def key(self, sequence: Sequence) -> float:
        return sequence.max_len - sequence.num_computed


class ProgramAware:
    """Least attained service first, counted by program; within one, its critical path first.

    Neither programs of many calls nor programs of one can starve the others: each is
    ranked by the tokens that all its calls have cost so far (Autellix, Luo et al. 2025). Services
    within a factor of two count as equal, so that programs finish rather than take turns. While no
    program is at work, requests are served in order of arrival.
    """

    def __init__(self) -> None:
        self._service: Counter[str] = Counter()
        self._live: Counter[str] = Counter()
        self._known: set[Sequence] = set()

    def key(self, sequence: Sequence) -> float:
        hint = sequence.request.hint
        if hint is None:
            return float(sequence.num_computed.bit_length()) if self._known else 0.0
        service = self._service[hint.program_id].bit_length()
        return service - min(max(hint.critical_path_weight, 0.0), 0.999)

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        if (hint := sequence.request.hint) is not None:
            if sequence not in self._known:
                self._known.add(sequence)
                self._live[hint.program_id] += 1
            self._service[hint.program_id] += num_tokens
            if len(self._service) > _MAX_PROGRAMS:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        """Forgets half of the programs that have no call here, those known longest first."""
        idle = [program for program in self._service if not self._live[program]]
        for program in idle[: _MAX_PROGRAMS // 2]:
            del self._service[program], self._live[program]

    def finish(self, sequence: Sequence) -> None:
        hint = sequence.request.hint
        if hint is None or sequence not in self._known:
            return
        self._known.remove(sequence)
        self._live[hint.program_id] -= 1
        if not self._live[hint.program_id] and hint.remaining_uses == 0:
            del self._live[hint.program_id], self._service[hint.program_id]


class Slack(FirstCome):
    """Least slack first: earliest due time, and after these what can't meet its target."""

    def __init__(self, levels: ServiceLevels) -> None:
        self._levels = levels

    def key(self, sequence: Sequence) -> float:
        return self._levels.key(sequence)


POLICIES: Mapping[str, Callable[[RadixCache, ServiceLevels], Policy]] = {
    "fcfs": lambda *_: FirstCome(),
    "longest-prefix": lambda cache, _: LongestPrefix(cache),
    "shortest-remaining": lambda *_: ShortestRemaining(),
    "program-aware": lambda *_: ProgramAware(),
    "slack": lambda _, levels: Slack(levels),
}


class TenantShares:
    """Weighted fairness over tenants by virtual token counters (Sheng et al. 2024).

    Each tenant's counter grows by its tokens divided by its weight; the smallest is served first.
    A tenant that comes back from idleness starts at the least active counter: it can't save up.

    Attributes:
        weights: shares by tenant, for tokens to come; 1 where not named.
    """

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self._counters: dict[str, float] = {}
        self._live: Counter[str] = Counter()
        self._floor = 0.0

    def add_request(self, tenant: str) -> None:
        if not self._live[tenant]:
            live = [self._counters[name] for name in self._live if self._live[name]]
            floor = min(live, default=self._floor)
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), floor)
        self._live[tenant] += 1

    def remove_request(self, tenant: str) -> None:
        self._live[tenant] -= 1
        if not self._live[tenant]:
            del self._live[tenant]
            self._floor = max(self._floor, self._counters[tenant])
        if not self._live:
            self._counters.clear()
        elif len(self._counters) - len(self._live) > _MAX_IDLE_TENANTS:
            self._forget_idle()

    def _forget_idle(self) -> None:
        """Forgets the half of the idle tenants with the least counters.

        Starting again at the least active counter changes the least for these.
        """
        idle = sorted(self._counters.keys() - self._live.keys(), key=self._counters.__getitem__)
        for tenant in idle[: len(idle) // 2]:
            del self._counters[tenant]

    def charge(self, tenant: str, num_tokens: int) -> None:
        self._counters[tenant] += num_tokens / self.weights.get(tenant, 1.0)

    def counter(self, tenant: str) -> float:
        """0 while there is one tenant alone: then nothing needs sharing."""
        return self._counters[tenant] if len(self._live) > 1 else 0.0


class Ranking:
    """The whole order: overdue, priority, preempted, tenant, policy, arrival."""

    def __init__(self, policy: Policy, shares: TenantShares, max_wait_s: float) -> None:
        self.policy = policy
        self.shares = shares
        self._max_wait_s = max_wait_s
        self._inherited: dict[Sequence, Rank] = {}

    def rank(self, sequence: Sequence, now: float) -> Rank:
        """The sequence's rank, at least that of sequences that wait for what it computes.

        Once it has waited for too long, all in all, it is overdue till its end.
        """
        request = sequence.request
        if sequence.state is SequenceState.WAITING:
            sequence.overdue |= now - sequence.waits_since >= self._max_wait_s
        own = (
            not sequence.overdue,
            -request.priority,
            sequence.num_preemptions == 0,
            self.shares.counter(request.tenant),
            self.policy.key(sequence),
            sequence.arrival,
        )
        inherited = self._inherited.get(sequence)
        return own if inherited is None else min(own, inherited)

    def inherit(self, rank: Rank, to: Sequence) -> None:
        """Priority inheritance: gives a running sequence the rank of one that waits for it."""
        self._inherited[to] = min(rank, self._inherited.get(to, rank))

    def clear_inherited(self) -> None:
        self._inherited.clear()

    def finish(self, sequence: Sequence) -> None:
        self.shares.remove_request(sequence.request.tenant)
        self.policy.finish(sequence)
        self._inherited.pop(sequence, None)

    def charge(self, sequence: Sequence, num_tokens: int) -> None:
        self.shares.charge(sequence.request.tenant, num_tokens)
        self.policy.charge(sequence, num_tokens)
