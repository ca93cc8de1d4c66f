"""The torch runner's promises again, kept by the Triton kernels, in bfloat16 on packed weights."""

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
# Interpreted steps take a second; these reach every kernel.
SELECTED = "shared_prefix or on_the_device or batch_invariant"


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="is interpreted already")
def test_the_runner_keeps_its_promises_on_interpreted_kernels():
    path = Path(__file__).with_name("test_torch_runner.py")
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            SELECTED,
            str(path),
        ],
        cwd=path.parents[4],
        env=os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert "skipped" not in run.stdout
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]
