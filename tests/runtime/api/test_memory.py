"""The machine's memory, and parts of it that are counted against a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ramet.runtime.api.errors import MemoryFullError, RequestTooLargeError
from ramet.runtime.api.memory import (
    MemoryLease,
    MemoryPart,
    machine_memory_bytes,
    resident_bytes,
)

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
UNLIMITED_V1 = "9223372036854771712\n"


def tree(folder: Path, files: dict[str, str]) -> tuple[Path, Path]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "cgroup", folder / "proc"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, PHYSICAL),
        ({"proc/cgroup": "0::/\n", "cgroup/memory.max": "max\n"}, PHYSICAL),
        ({"proc/cgroup": "0::/\n", "cgroup/memory.max": "1048576\n"}, 1 << 20),
        ({"proc/cgroup": "0::/a/b\n", "cgroup/a/b/memory.max": "4096\n"}, 4096),
        # A group's own limit is above its parent's.
        (
            {
                "proc/cgroup": "0::/a/b\n",
                "cgroup/a/b/memory.max": "8192\n",
                "cgroup/a/memory.max": "4096\n",
            },
            4096,
        ),
        # A container sees its group at the root, under a path of the host.
        ({"proc/cgroup": "0::/../docker/x\n", "cgroup/memory.max": "4096\n"}, 4096),
        (
            {
                "proc/cgroup": "5:cpu:/a\n4:memory:/a\n0::/\n",
                "cgroup/memory/a/memory.limit_in_bytes": "4096\n",
                "cgroup/memory/memory.limit_in_bytes": UNLIMITED_V1,
            },
            4096,
        ),
        (
            {
                "proc/cgroup": "4:blkio,memory:/not/mounted\n",
                "cgroup/memory/memory.limit_in_bytes": "4096\n",
            },
            4096,
        ),
        ({"proc/cgroup": "4:memory:/\n", "cgroup/memory/memory.limit_in_bytes": "?"}, PHYSICAL),
    ],
)
def test_the_least_limit_of_all_control_groups_counts(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    assert machine_memory_bytes(*tree(tmp_path, files)) == expected


def test_a_full_part_refuses_by_name_until_something_is_given_back() -> None:
    part = MemoryPart("prompts", 100)
    part.take(60)
    with pytest.raises(MemoryFullError, match="the memory for prompts is full: 60 of 100") as full:
        part.take(41)
    assert (full.value.part, full.value.status, full.value.code) == ("prompts", 503, "memory_full")
    part.take(40)
    part.give_back(60)
    part.take(60)
    assert (part.usage().num_bytes, part.usage().num_refused) == (100, 1)


def test_what_never_fits_is_too_large() -> None:
    part = MemoryPart("bodies", 100)
    with pytest.raises(RequestTooLargeError, match="101 bytes of the memory for bodies"):
        part.take(101)
    lease = MemoryLease(part)
    lease.take(60)
    with pytest.raises(RequestTooLargeError):
        lease.take(41)
    lease.close()
    lease.close()
    assert part.num_bytes == 0


def test_resident_memory_is_reported() -> None:
    assert resident_bytes() > 1 << 20
