"""Compiled operations: kept on disk, and with other CPUs' instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ramet.kernels.cpu.program import Program, Stage, Team
from ramet.kernels.cpu_support import compiled_op as compiled
from ramet.kernels.cpu_support import features
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.memory import load_i64, store_i64


def double_operand(stage, step, counter, thread):
    store_i64(step, 0, 2 * load_i64(stage, 2))


def triple_operand(stage, step, counter, thread):
    store_i64(step, 0, 3 * load_i64(stage, 2))


def run_once(name, function=double_operand):
    """Makes the operation anew, as another process would, and runs it."""
    step = np.zeros(16, np.int64)
    team = Team(1)
    team.run(Program([Stage(Op(name, function), {2: 21})]), step)
    team.close()
    return step[0]


@pytest.fixture
def compilations(monkeypatch):
    """The names of what was compiled, not loaded."""
    names = []
    compile_it = compiled.CFunc._compile_uncached

    def record(cfunc):
        names.append(cfunc.__name__)
        return compile_it(cfunc)

    monkeypatch.setattr(compiled.CFunc, "_compile_uncached", record)
    return names


def test_what_was_compiled_is_loaded(tmp_path, monkeypatch, compilations):
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path / "new"))
    assert [run_once("cached"), run_once("cached")] == [42, 42]
    assert compilations == ["cached"]


def test_a_changed_operation_is_compiled_again(tmp_path, monkeypatch, compilations):
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path))
    run_once("changed")
    assert run_once("changed", triple_operand) == 63
    assert run_once("changed") == 42
    assert compilations == ["changed", "changed"]


def test_whether_an_operation_is_on_disk_can_be_asked(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path))
    assert not Op("asked", double_operand).is_compiled
    run_once("asked")
    assert Op("asked", double_operand).is_compiled
    assert not Op("asked", double_operand).is_busy


def test_the_dot_path_can_be_chosen(monkeypatch):
    monkeypatch.setenv("RAMET_CPU_DOT_PATH", "portable")
    assert features.best_dot_path() == "portable"
    monkeypatch.setenv("RAMET_CPU_DOT_PATH", "abacus")
    with pytest.raises(ValueError, match="abacus"):
        features.best_dot_path()
    monkeypatch.delenv("RAMET_CPU_DOT_PATH")
    assert features.chosen_dot_path("auto") == features.supported_dot_paths()[0]
    assert features.chosen_dot_path("portable") == "portable"
    with pytest.raises(ValueError, match="cpu_path is 'amx-emulated'"):
        features.chosen_dot_path("amx-emulated")
    assert features.supported_dot_paths()[-1] == "portable"
    assert set(features.describe()) == {
        "cpu",
        "cores",
        "int8 dot product",
        "or by --cpu-path",
        "attention",
        "vector width",
    }


@pytest.mark.parametrize("granted", [True, False])
def test_tiles_need_the_kernels_permission(monkeypatch, granted):
    wanted = {"amx-tile", "amx-int8", "avx512f", "avx512bw", "avx512vl", "avx512vnni"}
    monkeypatch.setattr(features, "host_features", lambda: frozenset(wanted))
    monkeypatch.setattr(features, "grants_tiles", lambda: granted)
    assert ("amx-int8" in features.supported_dot_paths()) == granted
    assert features.supported_dot_paths()[0] == ("amx-int8" if granted else "avx512-vnni")


PRODUCT = """
import numpy as np
from ramet.kernels.cpu_support.features import best_dot_path
import importlib.util, sys
spec = importlib.util.spec_from_file_location("linear_test", sys.argv[1])
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
rng = np.random.default_rng(0)
values = rng.normal(size=(32, 64)).astype(np.float32)
x = rng.normal(size=(5, 64)).astype(np.float32)
for kind in ("Q4_1", "Q8_0"):
    weight = tests.pack(kind, tests.stored(kind, values)[0], values.shape)
    y = tests.product(weight, tests.Quantised(x), best_dot_path())
    sys.stdout.write(y.tobytes().hex())
"""


LINEAR_TESTS = str(Path(__file__).parents[1] / "linear" / "test_cpu.py")


def products(cache, **environment):
    """The bytes that ``PRODUCT`` prints, compiled for another CPU."""
    variables = os.environ | {"RAMET_CACHE_DIR": str(cache)} | environment
    command = [sys.executable, "-c", PRODUCT, LINEAR_TESTS]
    done = subprocess.run(command, env=variables, capture_output=True, check=True, text=True)
    return np.frombuffer(bytes.fromhex(done.stdout), np.float32)


@pytest.mark.skipif(not features.is_x86(), reason="compiles for x86 CPUs")
def test_older_cpus_get_the_same_results(tmp_path, monkeypatch, capsys):
    if "avx2" not in features.host_features() or not features.has_fma():
        pytest.skip("needs a CPU with AVX2 and FMA")
    monkeypatch.setattr(sys, "argv", ["-c", LINEAR_TESTS])
    exec(PRODUCT, {})
    here = np.frombuffer(bytes.fromhex(capsys.readouterr().out), np.float32)
    old = "+sse2,+ssse3,+sse4.1,+sse4.2,+popcnt,+64bit"
    haswell = products(
        tmp_path, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=f"{old},+avx,+avx2,+fma,+f16c"
    )
    np.testing.assert_array_equal(haswell, here)
    nehalem = products(tmp_path, NUMBA_CPU_NAME="nehalem", NUMBA_CPU_FEATURES=old)
    np.testing.assert_allclose(nehalem, here, rtol=0, atol=1e-5 * np.abs(here).max())
