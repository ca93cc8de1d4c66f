"""What a process forked from this one can't use: objects whose threads stay behind."""

from __future__ import annotations

import os

from ramet.runtime.api.errors import ForkedProcessError


class HomeProcess:
    """The process that made an object, and has the threads that the object waits for.

    ``os.fork`` copies the object and none of the threads: whoever waited for them in the copy
    would wait for ever, and what it sent elsewhere would be mistaken for its parent's.
    """

    __slots__ = ("_process_id",)

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._process_id

    def require(self, what: str) -> None:
        """Raises ForkedProcessError, which names ``what``, in any other process."""
        if not self.is_here:
            raise ForkedProcessError(
                f"{what} belongs to process {self._process_id}, from which this one was forked; "
                "make an engine here, start this process with 'spawn', or call a server"
            )
