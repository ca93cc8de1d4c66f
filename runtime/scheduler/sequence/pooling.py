"""Pools a prompt's hidden states into one vector."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.batch import Float32Array
from ramet.runtime.api.request import Pooling


class Pooler:
    """Adds up hidden states as they are computed, and ends in a unit vector.

    Both ways of pooling are sums over the tokens from some first one on: all of them for ``mean``,
    whose division is undone by scaling to unit length, and the last alone for ``last``. The sum is
    in float64 and in the order of the tokens, so it does not depend on how the prompt was cut into
    steps, on preemption, or on what the cache had.
    """

    def __init__(self, kind: Pooling, num_tokens: int) -> None:
        self.next_token = 0 if kind == "mean" else num_tokens - 1
        """Index of the first token whose state is still wanted; those before may be cached."""
        self._sum: npt.NDArray[np.float64] | float = 0.0

    def num_wanted(self, num_computed: int) -> int:
        """How many of the first ``num_computed`` tokens' states are still wanted: the last ones."""
        return max(0, num_computed - self.next_token)

    def add(self, states: Float32Array) -> None:
        """Adds the next tokens' states, [N, hidden_size]."""
        for state in states:
            self._sum = self._sum + state.astype(np.float64)
        self.next_token += len(states)

    def vector(self) -> Float32Array:
        """The sum at length 1, float32 [hidden_size]; zeros stay zeros."""
        total = np.asarray(self._sum)
        length = float(np.sqrt(np.square(total).sum()))
        scaled: Float32Array = (total / (length or 1.0)).astype(np.float32)
        return scaled
