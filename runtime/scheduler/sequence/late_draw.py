"""A drawn token whose following mask takes longer than a step may, and is filled in a thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.events import TokenInfo


class ForkingMatcher(Protocol):
    """A grammar's matcher whose masks can be filled in a background thread."""

    @property
    def is_accepting(self) -> bool: ...

    @property
    def is_finished(self) -> bool: ...

    def fill_mask(self, row: npt.NDArray[np.int32]) -> None: ...

    def try_mask(self, row: npt.NDArray[np.int32], seconds: float) -> bool: ...

    def fill_mask_in_background(self, row: npt.NDArray[np.int32]) -> None: ...

    def accept(self, token_id: int) -> bool: ...

    def rollback(self, num_tokens: int) -> None: ...

    def could_end(self, num_tokens: int, text: bytes) -> bool: ...

    def forced_bytes(self) -> bytes: ...

    def completion(self, *, max_work: int = ...) -> list[bytes | int]: ...

    def fork(self) -> ForkingMatcher: ...


@dataclass(slots=True)
class ReadyMask:
    """The mask of a sequence's next draw, if it was already needed for another purpose.

    Attributes:
        mask: int32[num_words].
        num_output: how many tokens of output it comes after.
    """

    mask: npt.NDArray[np.int32]
    num_output: int = -1


@dataclass(slots=True)
class LateDraw:
    """A drawn token that isn't appended to its sequence yet, and the task that fills the next mask.

    Attributes:
        matcher: a fork of the sequence's matcher, after the token.
        mask: int32[num_words]; complete once ``done`` is set.
        ahead: a fork after the text that the grammar forces there, whose mask is prepared, too,
            since that text is appended with the token.
        error: the error if the mask can't be filled.
    """

    token: TokenInfo
    matcher: ForkingMatcher
    mask: npt.NDArray[np.int32]
    ahead: ForkingMatcher | None = None
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def make_mask(self) -> None:
        """Fills the mask; for a background thread."""
        try:
            if self.ahead is not None:
                self.ahead.fill_mask_in_background(np.empty_like(self.mask))
            self.matcher.fill_mask_in_background(self.mask)
        except Exception as error:
            self.error = error
        self.done.set()
