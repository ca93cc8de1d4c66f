"""Memory: the machine's limit, this process's use, and budgets for parts of it."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ramet.runtime.api.errors import MemoryFullError, RequestTooLargeError

_CGROUP_ROOT = Path("/sys/fs/cgroup")
_PROC = Path("/proc/self")


def machine_memory_bytes(root: Path = _CGROUP_ROOT, proc: Path = _PROC) -> int:
    """Memory that this process may use: the machine's, or the least limit of its control groups.

    Reads version 1 and 2 of control groups (https://docs.kernel.org/admin-guide/cgroup-v2.html);
    a limit of any group above the process's own counts, too.

    Args:
        root: where the groups' file system is mounted.
        proc: the process's folder of the proc file system.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder, file in _group_folders(root, proc):
        with contextlib.suppress(OSError, ValueError):  # no such file, or "max"
            limits.append(int((folder / file).read_text()))
    return min(limit for limit in limits if limit > 0)


def _group_folders(root: Path, proc: Path) -> Iterator[tuple[Path, str]]:
    """Every group of this process, up to the root, with the name of its limit's file."""
    try:
        lines = (proc / "cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        # A container sees its own group at the root, whatever path it has outside.
        mounted = root / "memory" if controllers else root
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts) + 1):
            yield mounted.joinpath(*parts[:depth]), file


def resident_bytes() -> int:
    """Resident memory of this process; 0 where the system doesn't report it."""
    try:
        pages = int((_PROC / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class PartUsage:
    """A part's counters at one moment, in bytes; ``num_refused`` counts refusals."""

    num_bytes: int
    limit: int
    num_refused: int


class MemoryPart:
    """Counts the memory of one purpose against a limit. Safe from any thread.

    Args:
        name: what it is for, in the plural, such as ``prompts``; errors and metrics have it.
        limit: most bytes.
    """

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.num_bytes = 0
        self._num_refused = 0
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> None:
        """Counts more bytes.

        Raises:
            MemoryFullError: they don't fit now.
            RequestTooLargeError: they never would.
        """
        if num_bytes > self.limit:
            raise RequestTooLargeError(
                f"the request needs {num_bytes} bytes of the memory for {self.name}, which has "
                f"{self.limit} (--memory-gib)"
            )
        with self._lock:
            if self.num_bytes + num_bytes <= self.limit:
                self.num_bytes += num_bytes
                return
            self._num_refused += 1
        raise MemoryFullError(
            f"the memory for {self.name} is full: {self.num_bytes} of {self.limit} bytes are in "
            "use (--memory-gib)",
            part=self.name,
        )

    def give_back(self, num_bytes: int) -> None:
        """Counts bytes as free again."""
        with self._lock:
            self.num_bytes -= num_bytes

    def usage(self) -> PartUsage:
        """The counters as of now."""
        return PartUsage(self.num_bytes, self.limit, self._num_refused)

    def count_refusal(self) -> None:
        """Counts a refusal that was decided elsewhere."""
        with self._lock:
            self._num_refused += 1


class MemoryLease:
    """One owner's share of a budget; ``close`` returns it, once."""

    def __init__(self, part: MemoryPart) -> None:
        self._part = part
        self._num_bytes = 0

    def take(self, num_bytes: int) -> None:
        """See ``MemoryPart.take``; the limit holds for all that the owner has taken."""
        if self._num_bytes + num_bytes > self._part.limit:
            self._part.take(self._part.limit + 1)  # refused as what never fits
        self._part.take(num_bytes)
        self._num_bytes += num_bytes

    def close(self) -> None:
        """Returns the whole share."""
        self._part.give_back(self._num_bytes)
        self._num_bytes = 0


def format_bytes(num_bytes: int) -> str:
    """A readable size, in MiB or GiB."""
    if num_bytes >= 10 << 30:
        return f"{num_bytes / (1 << 30):.1f} GiB"
    return f"{num_bytes / (1 << 20):,.0f} MiB"


def format_parts(parts: Mapping[str, int]) -> str:
    """Readable sizes by name."""
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in parts.items())
