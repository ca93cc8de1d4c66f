"""What the type checker is told, in strict mode: errors in it are errors of the public surface."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_type_checkers_know_the_values_types() -> None:
    checks = Path(__file__).parent / "typing" / "checks.py"
    command = [sys.executable, "-m", "mypy", "--strict", "--exclude", "^$", str(checks)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
