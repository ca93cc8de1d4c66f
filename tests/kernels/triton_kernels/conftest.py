"""Tests of the Triton kernels themselves: on a GPU where there is one, else in the interpreter,
which has to be chosen before Triton is imported (``test_triton_interpreter.py`` does that)."""

import os
from contextlib import nullcontext

import pytest
import torch

from ramet.kernels.triton_support.interpreter import corrected_interpreter

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if not INTERPRETED and not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _interpreter():
    with corrected_interpreter() if INTERPRETED else nullcontext():
        yield


@pytest.fixture(scope="module", autouse=True)
def _device():
    """Tensors are made where the kernels run."""
    with torch.device("cpu" if INTERPRETED else "cuda"):
        yield
