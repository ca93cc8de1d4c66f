"""Runs the tests of ``triton_kernels/`` in a process in which Triton's kernels are interpreted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton")
version = tuple(map(int, triton.__version__.split(".")[:2]))
if version < (3, 7) and np.lib.NumpyVersion(np.__version__) >= "2.4.0":
    pytest.skip(
        "the interpreter of Triton before 3.7 makes integers of arrays, which NumPy 2.4 refuses",
        allow_module_level=True,
    )
FOLDER = Path(__file__).parent / "triton_kernels"


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_interpreted_kernels_equal_their_references(file):
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", str(FOLDER / file)],
        cwd=FOLDER.parents[2],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
