"""Tests of the Triton kernels themselves: on a GPU where there is one, else in the interpreter,
which has to be chosen before Triton is imported (``test_triton_interpreter.py`` does that)."""

import os

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if not INTERPRETED and not torch.cuda.is_available():
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session", autouse=True)
def _patch_language_once():
    """Triton's interpreter patches the members of its language at each call of a function within a
    kernel, though the launch has done it already: most of the time goes into finding nothing."""
    if not INTERPRETED:
        yield
        return
    from triton.language import core
    from triton.runtime import interpreter

    patch_all = interpreter._patch_builtin
    some_builtin = {}

    def patch_unless_patched(package, builder, scope):
        if package not in some_builtin:
            names = [name for name in dir(package) if core.is_builtin(getattr(package, name))]
            some_builtin[package] = names[0] if names else None
        name = some_builtin[package]
        if name is not None and core.is_builtin(getattr(package, name)):
            patch_all(package, builder, scope)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_builtin", patch_unless_patched)
        yield


@pytest.fixture(scope="module", autouse=True)
def _device():
    """Tensors are made where the kernels run."""
    with torch.device("cpu" if INTERPRETED else "cuda"):
        yield
