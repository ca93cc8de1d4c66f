"""Machine code is taken from disk only where the same would be compiled, and may be read only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import event

from ramet.jit import disk, jit
from ramet.kernels.cpu_support import compiled_op as compiled
from ramet.kernels.cpu_support.compiled_op import Op


def triple(x):
    return 3 * x


def nothing(stage, step, counter, thread):
    pass


def use_both():
    """Makes and uses both kinds of compiled code anew, as another process would."""
    assert jit("int64(int64)")(triple)(14) == 42
    assert Op("nothing", nothing).address


@pytest.fixture
def compilations(monkeypatch):
    """The names of what is compiled, not loaded."""
    names = []
    compile_it = compiled.CFunc._compile_uncached

    class Listener(event.Listener):
        def on_start(self, began):
            names.append(began.data["dispatcher"].py_func.__name__)

        def on_end(self, _):
            pass

    def record(cfunc):
        names.append(cfunc.__name__)
        return compile_it(cfunc)

    monkeypatch.setattr(compiled.CFunc, "_compile_uncached", record)
    with event.install_listener("numba:compile", Listener()):
        yield names


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("library", ["numba", "llvmlite", "numpy", "Python"])
def test_another_version_of_a_library_compiles_again(folder, monkeypatch, compilations, library):
    use_both()
    with monkeypatch.context() as changed:
        if library == "Python":
            changed.setattr(sys, "version", "3.99")
        else:
            changed.setattr(sys.modules[library], "__version__", "0.99")
        newly_imported = {"__file__": disk.__file__, "__name__": disk.__name__}
        exec(Path(disk.__file__).read_text(), newly_imported)
    monkeypatch.setattr(disk, "_VERSIONS", newly_imported["_VERSIONS"])
    use_both()
    use_both()
    assert compilations == ["triple", "nothing"] * 2


NAMES = """
from ramet.jit.ahead import compiled_of
from ramet.kernels.attention.cpu import attend_op
from ramet.kernels.cpu_support.compiled_op import _SIGNATURE
from ramet.kernels.sampling.cpu_mask import agrees_on_first_byte as function
print(function._cache._file_name(function._signatures[0]))
print(attend_op("float32")._cache._file_name(_SIGNATURE))
"""


def test_another_cpu_s_code_has_another_file(monkeypatch):
    def names(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        run = [sys.executable, "-c", NAMES]
        return subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()

    here = names()
    generic = names(NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="+sse2")
    newer = names(NUMBA_CPU_FEATURES="+sse2,+sse3")
    assert len({*here, *generic, *newer}) == 6


def test_a_folder_that_may_only_be_read_is_read(folder, monkeypatch, compilations):
    use_both()
    assert compilations == ["triple", "nothing"]

    def refused(*_, **__):
        raise PermissionError

    for name in ("tempfile.mkstemp", "pathlib.Path.mkdir", "pathlib.Path.unlink"):
        monkeypatch.setattr(name, refused)
    monkeypatch.setattr("os.access", lambda *_: False)
    use_both()
    assert compilations == ["triple", "nothing"]
    (path, _) = folder.glob("*.bin")
    path.write_bytes(b"")  # what isn't there is compiled, and kept nowhere
    use_both()
    assert len(compilations) == 3
    assert path.read_bytes() == b""
