"""The common prefix of two token sequences."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def shared_len(left: npt.NDArray[np.int32], right: npt.NDArray[np.int32]) -> int:
    """Number of leading tokens in common."""
    size = min(len(left), len(right))
    if size == 0 or left[0] != right[0]:
        return 0
    different = left[:size] != right[:size]
    first = int(different.argmax())
    return first if different[first] else size
