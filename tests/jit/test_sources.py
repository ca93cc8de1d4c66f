"""What tells the sources of compiled functions apart."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from numba import njit, types
from numba.extending import intrinsic

from ramet.grammars.masks import fill
from ramet.jit.sources import digest
from ramet.kernels.attention.cpu import attend_op

SOURCE = """
from numba import njit
from ramet_sample import constants

LIMIT = 3
UNRELATED = 1

@njit
def inner(x):
    return x + LIMIT

def function(x):
    return inner(x) * constants.FACTOR

def unrelated(x):
    return x + UNRELATED
"""


@pytest.fixture
def digest_of(monkeypatch):
    """The digest of ``function`` in a source text, after replacements."""

    def make(*replacements, factor=2):
        constants = ModuleType("ramet_sample.constants")
        constants.FACTOR = factor
        package = ModuleType("ramet_sample")
        package.constants = constants
        monkeypatch.setitem(sys.modules, "ramet_sample", package)
        monkeypatch.setattr("ramet.jit.sources._OURS", "ramet_sample")
        text = SOURCE
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        module = ModuleType("ramet_sample.loops")
        exec(text, vars(module))
        return digest(module.function)

    return make


def test_the_same_source_has_the_same_digest(digest_of):
    assert digest_of() == digest_of()


@pytest.mark.parametrize(
    "change",
    [
        ("inner(x) *", "inner(x) +"),  # the function
        ("x + LIMIT", "x - LIMIT"),  # what it calls
        ("LIMIT = 3", "LIMIT = 4"),  # what that names
        ("@njit\ndef inner", "@njit(error_model='numpy')\ndef inner"),  # how that is compiled
    ],
)
def test_every_part_of_the_code_changes_it(digest_of, change):
    assert digest_of(change) != digest_of()


def test_a_constant_of_another_module_changes_it(digest_of):
    assert digest_of(factor=5) != digest_of()


def test_what_does_not_go_into_the_code_does_not(digest_of):
    other = [("UNRELATED = 1", "UNRELATED = 2"), ("x + UNRELATED", "x - UNRELATED")]
    assert digest_of(*other, ("LIMIT = 3", "LIMIT = 3  # at least")) == digest_of()


def made(factor, inner):
    @intrinsic
    def scaled(typingctx, x):
        def codegen(context, b, sig, args):
            return b.mul(args[0], context.get_constant(types.int64, factor))

        return types.int64(types.int64), codegen

    def function(x):
        return inner(scaled(x))

    return function


def test_what_factories_were_given_changes_it():
    def up(x):
        return x + 1

    def down(x):
        return x - 1

    first = digest(made(2, njit(up)))
    assert first == digest(made(2, njit(up)))
    assert len({first, digest(made(3, njit(up))), digest(made(2, njit(down)))}) == 3


def test_how_it_is_compiled_changes_it():
    assert digest(made, "int64") != digest(made, "int32")


def test_what_cannot_be_distinguished_is_an_error():
    with pytest.raises(TypeError, match="has no digest"):
        digest(made(object(), njit(lambda x: x)))


def test_it_is_the_same_in_every_process():
    import subprocess

    code = (
        "from ramet.jit.sources import digest\n"
        "from ramet.grammars.masks import fill\n"
        "from ramet.kernels.attention.cpu import attend_op\n"
        "print(digest(fill.fill_mask.py_func).hex(), digest(attend_op('float32')._function).hex())"
    )
    run = [sys.executable, "-c", code]
    there = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    here = [fill.fill_mask.py_func, attend_op("float32")._function]
    assert there == [digest(each).hex() for each in here]
