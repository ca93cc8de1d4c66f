"""Passes what programs know of the future on to the prefix cache."""

from __future__ import annotations

from collections import Counter

from ramet.runtime.cache import PrefixHandle, RadixCache
from ramet.runtime.scheduler.sequence import Sequence


class HintKeeper:
    """Turns a request's ProgramHint into ``expect`` and ``forget`` when the request ends.

    A hint counts steps of its own program. The cache's clock counts look-ups of all, so a step of
    one program is as many ticks as there are programs at work.
    """

    def __init__(self, cache: RadixCache) -> None:
        self._cache = cache
        self._live: Counter[str] = Counter()

    def arrive(self, sequence: Sequence) -> None:
        if (hint := sequence.request.hint) is not None:
            self._live[hint.program_id] += 1

    def leave(self, sequence: Sequence, handle: PrefixHandle | None) -> None:
        """``handle`` is what the sequence left in the cache, if it ran."""
        hint = sequence.request.hint
        if hint is None:
            return
        if handle is not None:
            if hint.remaining_uses == 0:
                self._cache.forget(handle, keep_len=sequence.cached_len)
            elif hint.steps_to_next_use is not None:
                ticks = (hint.steps_to_next_use + 1) * len(self._live)
                self._cache.expect(handle, hint.remaining_uses or 1, ticks)
        self._live[hint.program_id] -= 1
        if not self._live[hint.program_id]:
            del self._live[hint.program_id]
