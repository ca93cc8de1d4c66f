"""A drawn token that waits for the mask after it, which takes longer than a step may."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.events import TokenInfo


class ForkingMatcher(Protocol):
    """A grammar's matcher, whose masks may be made in a thread of their own."""

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
    """The mask of a sequence's next draw, where it was needed before.

    Attributes:
        mask: int32[num_words].
        num_output: how many tokens of output it comes after.
    """

    mask: npt.NDArray[np.int32]
    num_output: int = -1


@dataclass(slots=True)
class LateDraw:
    """A drawn token that its sequence doesn't have yet, and the making of the mask after it.

    Attributes:
        matcher: a fork of the sequence's matcher, after the token.
        mask: int32[num_words]; complete once ``done`` is set.
        ahead: a fork after the text that the grammar forces there, whose mask is made, too, since
            the token comes with that text.
        error: why there is none.
    """

    token: TokenInfo
    matcher: ForkingMatcher
    mask: npt.NDArray[np.int32]
    ahead: ForkingMatcher | None = None
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None

    def make_mask(self) -> None:
        """Makes the mask; to be run in a thread of its own."""
        try:
            if self.ahead is not None:
                self.ahead.fill_mask_in_background(np.empty_like(self.mask))
            self.matcher.fill_mask_in_background(self.mask)
        except Exception as error:
            self.error = error
        self.done.set()
