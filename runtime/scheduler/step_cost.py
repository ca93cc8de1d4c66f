"""What a step costs, learned from the steps that there have been."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_USUAL = np.array([7.0, 1.0, 0.3])
"""A step's fixed cost, a token's, and a row's, in tokens: a small model on a CPU."""
_LEAST = 0.1
"""No cost is taken for less than this share of its usual one."""
_DECAY = 0.99
_USUAL_WEIGHT = 4.0
"""In steps: how much the usual proportions count beside what has been seen."""
_SOLVE_EVERY = 8
_OUTLIER = 3.0


class StepCost:
    """Time of a step as a linear function of its tokens and rows.

    Least squares over past steps, older ones counting less, drawn to usual proportions: where all
    steps are alike nothing else tells a token's cost from the step's own. Until the first
    observation the unit is one token's cost, which is all that comparing needs.
    """

    def __init__(self) -> None:
        self._costs = _USUAL.copy()
        self._products = np.zeros((3, 3))
        self._sums = np.zeros(3)
        self._num_seen = 0

    def observe(self, num_tokens: int, num_rows: int, seconds: float) -> None:
        """Learns from a step; one of no duration teaches nothing.

        A step that took several times as long as expected was held up by something else.
        """
        if seconds <= 0:
            return
        step = np.array([1.0, num_tokens, num_rows])
        if self._num_seen >= _SOLVE_EVERY:
            seconds = min(seconds, _OUTLIER * float(step @ self._costs))
        self._products = _DECAY * self._products + np.outer(step, step)
        self._sums = _DECAY * self._sums + seconds * step
        self._num_seen += 1
        if self._num_seen % _SOLVE_EVERY == 0 or self._num_seen == 1:
            self._costs = self._solve()

    def expected(self, num_tokens: int, num_rows: int) -> tuple[float, float]:
        """(a step's time, what one token more adds to it), in one unit."""
        fixed, a_token, a_row = self._costs.tolist()
        return fixed + a_token * num_tokens + a_row * num_rows, a_token

    def _solve(self) -> npt.NDArray[np.float64]:
        # The usual costs, in seconds, by what the steps so far took in all.
        usual = _USUAL * (self._sums[0] / (self._products[0] @ _USUAL))
        share = _USUAL_WEIGHT / self._products[0, 0]
        pull = np.diag(share * np.diag(self._products))
        costs = np.linalg.solve(self._products + pull, self._sums + pull @ usual)
        bounded: npt.NDArray[np.float64] = np.maximum(costs, _LEAST * usual)
        return bounded
