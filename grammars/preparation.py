"""``Preparation``: computes a grammar's likely transitions and parts of masks in advance.

Masks are filled on the step thread, so a first visit of a state costs all requests time, while
compiling runs in another thread, and there is time while a prompt is read. A compilation computes
what the first tokens need; the rest follows in slices, between which the tables are unlocked.
"""

from __future__ import annotations

import time
from collections import deque
from math import inf

from .errors import GrammarTooComplexError
from .masks.context_independent import ContextIndependentMasks
from .pushdown.pushdown_table import PushdownTable

_MAX_TRANSITIONS, _MAX_STATES = 2000, 256
"""The most transitions, and lexeme states with parts of masks, that are computed in advance."""


class Preparation:
    """Computes likely transitions of a pushdown table and likely parts of its masks."""

    def __init__(
        self,
        pushdown: PushdownTable,
        context_independent: ContextIndependentMasks,
        max_contexts: int,
    ) -> None:
        """No transitions are made once there are more than ``max_contexts`` contexts."""
        self._pushdown = pushdown
        self._context_independent = context_independent
        self._max_contexts = max_contexts
        self._transitions = pushdown.likely_transitions()
        self._states: deque[int] = deque()
        self._num_transitions = self._num_states = 0
        self._has_transitions = True

    def check(self, count: int, seconds: float = inf) -> None:
        """Computes the first ``count`` transitions, or fewer if time runs out.

        Raises:
            GrammarTooComplexError: one can't be computed.
        """
        end = time.monotonic() + seconds
        while self._num_transitions < count and self._make_transition():
            if time.monotonic() > end:
                return

    def run(self, seconds: float = inf) -> bool:
        """Continues for about some time; returns whether there is more to compute."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                made = self._make_transition() or self._make_state()
            except GrammarTooComplexError:
                made = self._has_transitions = False  # Perhaps on a way that no text takes.
            if not made:
                return False
        return True

    def _make_transition(self) -> bool:
        with self._pushdown.lock:
            self._has_transitions = (
                self._has_transitions
                and self._num_transitions < _MAX_TRANSITIONS
                and self._pushdown.num_contexts <= self._max_contexts
                and next(self._transitions, None) is not None
            )
        self._num_transitions += 1
        return self._has_transitions

    def _make_state(self) -> bool:
        table = self._context_independent.state_table
        with table.lock:
            self._states.extend(table.fresh)
            table.fresh.clear()
            if not self._states or self._num_states >= _MAX_STATES:
                return False
            self._num_states += 1
            self._context_independent.prepare(self._states.popleft())
        return True
