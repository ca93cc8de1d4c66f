"""When the engine's process is started again, and when that is given up."""

from __future__ import annotations

MAX_FAILED_STARTS = 10
"""Starts in a row that may fail before no further one is tried."""

_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0


class RestartPolicy:
    """Exponential backoff over starts that fail, with an end.

    A process that took requests before it died is started again in any case: ending the server for
    it would let one request end everybody's.
    """

    def __init__(self) -> None:
        self._num_failed = 0

    def next_pause_s(self, ran_s: float, *, has_served: bool) -> float | None:
        """Seconds to wait before the next start; None: give up.

        Args:
            ran_s: how long the process that has ended ran.
            has_served: it has finished its start.
        """
        if has_served:
            self._num_failed = 0
            return 0.0 if ran_s >= _FIRST_PAUSE_S else _FIRST_PAUSE_S
        self._num_failed += 1
        if self._num_failed >= MAX_FAILED_STARTS:
            return None
        return float(min(_FIRST_PAUSE_S * 2 ** (self._num_failed - 1), _LONGEST_PAUSE_S))
