"""How long garbage collections have stopped the threads of this process."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping


class GcPauses:
    """Measures every collection of this process; they run one at a time.

    Attributes:
        longest_s: the longest one's seconds.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._began: float | None = None
        gc.callbacks.append(self._note)

    def _note(self, phase: str, _: Mapping[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        elif self._began is not None:
            self.longest_s = max(self.longest_s, time.perf_counter() - self._began)

    def reset(self) -> None:
        """Forgets what there has been, such as a start's collections."""
        self.longest_s = 0.0


GC_PAUSES = GcPauses()
"""Of this process, since its start has finished."""
