"""Programs that wait for a tool, and how long their prefixes are kept for them.

A call whose hint names a tool is continued when that tool has answered. Till then its pages stay
held, for as long as the tool has usually taken; after that they are the cache's like any others.
When pages run out, pauses give way before any running sequence does.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.cache import PrefixHandle, RadixCache
from ramet.runtime.scheduler.pages import shared_len
from ramet.runtime.scheduler.sequence import Sequence

_FIRST_BUDGET_S = 5.0
_LEAST_BUDGET_S = 0.25
_MAX_REMEMBERED = 1024
_NUM_DURATIONS = 32


class ToolDurations:
    """How long each tool took lately."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=_NUM_DURATIONS)
        )

    def note(self, tool: str, seconds: float) -> None:
        self._seconds[tool].append(seconds)

    def budget_s(self, tool: str) -> float:
        """One and a half times what nine in ten of the tool's last runs stayed within."""
        seconds = self._seconds.get(tool)
        if not seconds:
            return _FIRST_BUDGET_S
        return max(1.5 * sorted(seconds)[int(0.9 * (len(seconds) - 1))], _LEAST_BUDGET_S)


@dataclass(slots=True, eq=False)
class Pause:
    """A program's call that a tool's answer will continue; ``handle`` is None once given up."""

    program_id: str
    tool: str
    token_ids: npt.NDArray[np.int32]
    namespace: str
    since: float
    until: float
    handle: PrefixHandle | None


class Pauses:
    """All pauses, oldest first; together they hold at most ``max_share`` of the pages."""

    def __init__(self, cache: RadixCache, max_share: float = 0.25) -> None:
        self.durations = ToolDurations()
        self._cache = cache
        self._max_locked = int(max_share * cache.pool.num_pages)
        self._pauses: OrderedDict[Pause, None] = OrderedDict()
        self._held: set[Pause] = set()

    @property
    def num_held(self) -> int:
        """Pauses whose pages are still held."""
        return len(self._held)

    def begin(self, sequence: Sequence, handle: PrefixHandle, now: float) -> None:
        """A call has ended that a tool's answer will continue."""
        hint = sequence.request.hint
        assert hint is not None
        num_locked = self._cache.num_locked
        self._cache.hold(handle)
        until = now + self.durations.budget_s(hint.tool)
        known = sequence.token_ids[: handle.matched_len].copy()
        pause = Pause(
            hint.program_id, hint.tool, known, sequence.request.cache_salt, now, until, handle
        )
        self._pauses[pause] = None
        self._held.add(pause)
        if self._cache.num_locked > max(self._max_locked, num_locked):
            self._let_go(pause)
        if len(self._pauses) > _MAX_REMEMBERED:
            oldest, _ = self._pauses.popitem(last=False)
            self._let_go(oldest)

    def arrive(self, sequence: Sequence, now: float) -> None:
        """A request that continues a paused call teaches how long its tool has taken."""
        hint = sequence.request.hint
        if hint is None or not self._pauses:
            return
        prompt = sequence.token_ids[: sequence.num_prompt]
        for pause in list(self._pauses):
            if (
                pause.program_id == hint.program_id
                and pause.namespace == sequence.request.cache_salt
                and shared_len(prompt, pause.token_ids) == len(pause.token_ids)
            ):
                self.durations.note(pause.tool, now - pause.since)
                del self._pauses[pause]
                sequence.resumes = pause
                return

    def resumed(self, sequence: Sequence) -> None:
        """The request has its own hold on the prefix, or has ended."""
        if sequence.resumes is not None:
            self._let_go(sequence.resumes)
            sequence.resumes = None

    def expire(self, now: float) -> None:
        """Gives up what has been held for too long."""
        for pause in [pause for pause in self._held if now >= pause.until]:
            self._let_go(pause)

    def give_way(self) -> bool:
        """Gives up the pause that is expected to last longest; False if there is none."""
        if not self._held:
            return False
        self._let_go(max(self._held, key=lambda pause: pause.until))
        return True

    def _let_go(self, pause: Pause) -> None:
        if pause.handle is not None:
            self._cache.release(pause.handle)
            pause.handle = None
            self._held.discard(pause)
