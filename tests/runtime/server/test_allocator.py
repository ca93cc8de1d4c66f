"""Memory of large bodies is returned to the system, whatever has been allocated since."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from ramet.runtime.api.memory import resident_bytes
from ramet.runtime.server.allocator import return_large_blocks

if sys.argv[1] == "set":
    return_large_blocks()
for size in range(1, 5):
    bytearray(size << 20)  # raises glibc's own threshold
before = resident_bytes()
large, small = [], []
for _ in range(30):
    large.append(b"x" * (2 << 20))
    small.append(b"x" * 5000)  # above Python's own small blocks
large.clear()
print((resident_bytes() - before) >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is about glibc")
def test_small_blocks_do_not_keep_large_ones() -> None:
    kept = {}
    for name in ("set", "unset"):
        command = [sys.executable, "-c", SCRIPT, name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        kept[name] = int(done.stdout)
    assert kept["set"] <= 5
    assert kept["unset"] >= 40  # otherwise there is nothing to do
