"""Refuses objects of a parent process in a forked one."""

from __future__ import annotations

import os

from ramet.runtime.api.errors import ForkedProcessError


class ForkGuard:
    """Remembers the process that made an object, which alone has the object's threads.

    ``os.fork`` copies the object and none of its threads: waiting for them in the copy would never
    end, and what the copy sends to others would pass for its parent's.
    """

    __slots__ = ("_process_id",)

    def __init__(self) -> None:
        self._process_id = os.getpid()

    @property
    def is_owner(self) -> bool:
        """Whether the current process made the object."""
        return os.getpid() == self._process_id

    def require(self, what: str) -> None:
        """Raises ForkedProcessError, which names ``what``, in a forked process."""
        if not self.is_owner:
            raise ForkedProcessError(
                f"{what} belongs to process {self._process_id}, from which this one was forked; "
                "make an engine here, start this process with 'spawn', or call a server"
            )
