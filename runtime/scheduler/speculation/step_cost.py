"""Cost model of a step, fitted to past steps."""

from __future__ import annotations

from collections.abc import Callable
from operator import mul

_PRIOR_COSTS: tuple[float, ...] = (7.0, 1.0, 0.3)
"""A step's fixed cost, a token's, and a row's, in tokens: a small model on a CPU."""
_LEAST = 0.1
"""Lower bound of a cost, as a share of its prior."""
_DECAY = 0.99
_PRIOR_WEIGHT = 4.0
"""Weight of the prior costs, in steps."""
_SOLVE_EVERY = 8
_MAX_SLOWER = 2.0
_MAX_FASTER = 3.0
"""Outlier bounds, as ratios to the expected time: slower steps are clipped to the one, and steps
faster by the other reset the fit."""


class StepCost:
    """Time of a step as a linear function of its tokens and rows.

    Least squares over past steps with exponentially decaying weights, regularised towards the
    prior's proportions: equal steps alone don't separate a token's cost from the step's own. Until
    the first observation the unit is one token's cost, which is enough for comparisons.

    Args:
        timer: seconds; None: nothing is timed.

    Plain floats: between two steps numpy's code has left the CPU's caches.
    """

    def __init__(self, timer: Callable[[], float] | None = None) -> None:
        self._timer = timer
        self._started = 0.0
        self._costs = _PRIOR_COSTS
        self._sums = [0.0] * 9
        self._num_seen = 0

    def start(self) -> None:
        """Starts to time a step."""
        if self._timer is not None:
            self._started = self._timer()

    def stop(self, num_tokens: int, num_rows: int) -> None:
        """Learns from the step that was started."""
        if self._timer is not None:
            self.observe(num_tokens, num_rows, self._timer() - self._started)

    def observe(self, num_tokens: int, num_rows: int, seconds: float) -> None:
        """Fits the model to a step; one without a duration is ignored.

        A step that took much longer than expected was delayed by something else, and is clipped. If
        a step was much faster than expected, those before it were delayed, and the fit is reset.
        """
        if seconds <= 0:
            return
        if self._num_seen:
            expected, _ = self.expected(num_tokens, num_rows)
            seconds = min(seconds, _MAX_SLOWER * expected)
            if seconds < expected / _MAX_FASTER:
                self._sums = [0.0] * len(self._sums)
                self._num_seen = 0
        new = (
            1.0,
            num_tokens,
            num_rows,
            num_tokens * num_tokens,
            num_tokens * num_rows,
            num_rows * num_rows,
            seconds,
            seconds * num_tokens,
            seconds * num_rows,
        )
        self._sums = [_DECAY * before + now for before, now in zip(self._sums, new, strict=True)]
        self._num_seen += 1
        if self._num_seen % _SOLVE_EVERY == 0 or self._num_seen == 1:
            self._costs = self._solve()

    @property
    def is_measured(self) -> bool:
        """Whether a step has been timed: the unit of ``expected`` is the second."""
        return self._num_seen > 0

    def expected(self, num_tokens: int, num_rows: int) -> tuple[float, float]:
        """(a step's time, what one token more adds to it), in one unit."""
        fixed, a_token, a_row = self._costs
        return fixed + a_token * num_tokens + a_row * num_rows, a_token

    def _solve(self) -> tuple[float, ...]:
        steps, tokens, rows, tokens2, both, rows2, *times = self._sums
        products = [[steps, tokens, rows], [tokens, tokens2, both], [rows, both, rows2]]
        # The usual costs, in seconds, by what the steps so far took in all.
        unit = times[0] / sum(map(mul, products[0], _PRIOR_COSTS))
        usual = [unit * cost for cost in _PRIOR_COSTS]
        for at in range(3):
            pull = _PRIOR_WEIGHT / steps * products[at][at]
            products[at][at] += pull
            times[at] += pull * usual[at]
        costs = _solved(products, times)
        return tuple(max(cost, _LEAST * least) for cost, least in zip(costs, usual, strict=True))


def _solved(matrix: list[list[float]], values: list[float]) -> list[float]:
    """The solution of three equations whose matrix is symmetric and positive definite."""
    for at in range(3):
        for below in range(at + 1, 3):
            factor = matrix[below][at] / matrix[at][at]
            values[below] -= factor * values[at]
            for column in range(at, 3):
                matrix[below][column] -= factor * matrix[at][column]
    for at in (2, 1, 0):
        known = sum(matrix[at][column] * values[column] for column in range(at + 1, 3))
        values[at] = (values[at] - known) / matrix[at][at]
    return values
