"""The rows of lexeme states: the transition by each byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

DEAD = -1
"""In a row: no text of the language goes on with this byte."""

LAZY = -(1 << 30)
"""In a row: ``Lexeme.edge`` computes the entry, which may turn out to be ``DEAD``."""

Row = NDArray[np.int32]
"""int32[256]: for each byte the next state, ``DEAD``, or ``ended(label)``."""


def ended(label: int) -> int:
    """The row entry of a byte that is the lexeme's last one: it ends with ``label``."""
    return -2 - label
