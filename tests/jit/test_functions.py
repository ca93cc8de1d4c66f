"""Functions that are compiled when they are first needed, and kept on disk."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numba import types

from ramet.jit import ahead, disk, jit, open_jit
from ramet.jit.ahead import compile_in_background, compiled_of, is_compiled


def triple(x):
    return 3 * x


def _quadruple(x):
    return 4 * x


def function(*signatures, make=jit):
    """``triple`` as another process would have it."""
    return make(*(signatures or ("int64(int64)",)))(triple)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_nothing_is_compiled_before_it_is_needed(folder, compilations):
    lazy = function()
    assert not lazy.is_compiled
    assert compilations == []
    assert lazy(14) == 42
    assert lazy.is_compiled
    assert compilations == ["triple"]


def test_what_was_compiled_is_loaded(folder, compilations):
    assert [function()(14), function()(14)] == [42, 42]
    assert compilations == ["triple"]


def test_other_types_are_refused_or_compiled_as_they_come(folder, compilations):
    likely = function(make=open_jit)
    np.testing.assert_array_equal(likely(np.ones(2)), [3, 3])
    assert not likely.is_compiled
    likely.load()
    assert likely.is_compiled
    with pytest.raises(TypeError, match="No matching definition"):
        function()(np.zeros(2))


def test_compiled_code_calls_what_has_been_loaded(folder, compilations):
    function().load()
    inner = function()  # from the file
    inner.load()

    def outer(x):
        return inner(x) + 1

    assert jit("int64(int64)")(outer)(14) == 43
    assert compilations == ["triple", "outer"]


@pytest.mark.parametrize("place", [0, 40, -1])
def test_a_damaged_file_is_compiled_and_written_again(folder, compilations, place):
    function()(1)
    [path] = folder.glob("*.bin")
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    assert function()(14) == 42
    path.write_bytes(good[:100])
    assert function()(14) == 42
    assert function()(14) == 42
    assert compilations == ["triple"] * 3


def test_no_folder_is_tolerated(tmp_path, monkeypatch, compilations):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path / "file"))
    assert [function()(14), function()(14)] == [42, 42]
    assert compilations == ["triple"] * 2
    assert compile_in_background("ramet.kernels.sampling.cpu_mask") is None


def test_no_home_is_tolerated(monkeypatch):
    for name in ("RAMET_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user without one
    [bytecode] = disk.cache_folders()
    assert bytecode.name == "__pycache__"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert disk.cache_folders() == (bytecode,)
    monkeypatch.setenv("XDG_CACHE_HOME", "/absolute")
    assert disk.cache_folders() == (bytecode, Path("/absolute/ramet/kernels"))


def test_a_tilde_in_the_folder_is_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAMET_CACHE_DIR", "~/cache")
    assert disk.cache_folders() == (tmp_path / "cache",)


@pytest.mark.parametrize("name", ["x" * 300, "loop/x"])
def test_a_folder_that_cannot_be_looked_into_is_tolerated(
    tmp_path, monkeypatch, compilations, name
):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    monkeypatch.setenv("RAMET_CACHE_DIR", str(tmp_path / name))
    lazy = function()
    assert lazy(14) == 42
    assert not lazy.is_compiled


def test_one_that_may_not_be_looked_into_is_none_either(folder, monkeypatch):
    def refused(*_, **__):
        raise PermissionError

    function()(1)
    monkeypatch.setattr("ramet.trusted_files.check_folder", refused)
    assert not function().is_compiled


def test_a_full_disk_is_tolerated_and_gets_no_rubbish(folder, monkeypatch, compilations):
    def full(*_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.replace", full)
    assert function()(14) == 42
    assert list(folder.iterdir()) == []


def test_what_cannot_be_written_leaves_nothing(tmp_path):
    with pytest.raises(TypeError):
        disk._write(tmp_path / "x.bin", object())
    assert list(tmp_path.iterdir()) == []


def test_another_users_lock_file_is_left(folder, monkeypatch, compilations):
    def refused(*_, **__):
        raise PermissionError

    monkeypatch.setattr("pathlib.Path.unlink", refused)
    assert function()(14) == 42
    assert len(list(folder.glob("*.lock"))) == 1
    assert function()(14) == 42
    assert compilations == ["triple"]


def test_an_empty_file_is_not_taken_for_compiled(folder, compilations):
    function()(1)
    [path] = folder.glob("*.bin")
    path.write_bytes(b"")
    assert not function().is_compiled
    assert function()(14) == 42
    assert function().is_compiled
    assert compilations == ["triple"] * 2


def test_a_folder_that_takes_nothing_is_still_read(tmp_path, monkeypatch, compilations):
    monkeypatch.setattr(disk, "cache_folders", lambda: (tmp_path / "filled",))
    function()(1)
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(disk, "cache_folders", lambda: (tmp_path / "file", tmp_path / "filled"))
    assert function()(14) == 42
    assert compilations == ["triple"]


def test_threads_that_need_it_together_share_it(folder, compilations):
    shared, results = function(), []
    threads = [threading.Thread(target=lambda: results.append(shared(14))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [42] * 4
    assert compilations == ["triple"]


BOTH = """
import sys
from numba import types
from numba.core import event
from ramet.kernels.sampling.cpu_mask import agrees_on_first_byte

class Listener(event.Listener):
    def on_start(self, began):
        if began.data["dispatcher"] is agrees_on_first_byte:
            print("compiled", flush=True)
    def on_end(self, _):
        pass

event.register("numba:compile", Listener())
print("waiting", flush=True)
sys.stdin.readline()
agrees_on_first_byte.load()
"""


def test_processes_that_need_it_together_share_the_work(folder):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen([sys.executable, "-c", BOTH], **pipes) for _ in range(2)]
    for process in processes:
        assert process.stdout.readline() == "waiting\n"
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(said) == ["", "compiled\n"]
    assert not list(folder.glob("*.lock"))


def test_what_another_process_compiles_comes_last(folder, monkeypatch):
    ours, theirs = function(), open_jit("int64(int64)")(_quadruple)
    order = []
    for each in (ours, theirs):
        monkeypatch.setattr(each, "load", lambda each=each: order.append(each))
    monkeypatch.setattr(ahead, "compiled_of", lambda *_: iter([theirs, ours]))
    with theirs._cache.alone(types.int64(types.int64)):
        assert theirs.is_busy
        ahead.compile_all([])
    assert not theirs.is_busy
    assert order == [ours, theirs]


def test_another_process_compiles_ahead(folder):
    assert not is_compiled("ramet.kernels.sampling.cpu_mask")
    process = compile_in_background("ramet.kernels.sampling.cpu_mask")
    assert process is not None
    assert process.wait() == 0
    assert is_compiled("ramet.kernels.sampling.cpu_mask")


def test_compiling_ahead_ends_with_its_parent(folder):
    command = [
        sys.executable,
        "-m",
        "ramet.jit",
        str(os.getpid() + 1),
        "ramet.kernels.sampling.cpu_mask",
    ]
    subprocess.run(command, check=True)
    assert not is_compiled("ramet.kernels.sampling.cpu_mask")


def test_compiling_ahead_ends_in_the_midst_of_a_function(folder):
    child = (
        "import sys, time; from ramet.jit.ahead import exit_with_parent\n"
        "exit_with_parent(int(sys.argv[1])); print(1, flush=True); time.sleep(1000)"
    )
    program = (
        "import os, subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {child!r}, str(os.getpid())])"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"1\n"
        parent.kill()
        assert parent.stdout.read() == b""  # until no process has it open any more


def test_importing_compiles_nothing(folder):
    code = "import ramet.grammars.compile, ramet.kernels.cpu.program, ramet.kernels.sampling.cpu"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not folder.exists()


def test_all_that_steps_and_grammars_need_is_found():
    names = {each.py_func.__name__ for each in compiled_of("ramet.grammars")}
    assert {"fill_mask", "advance", "determinise", "build_trie", "write_row"} <= names
    steps = list(compiled_of("ramet.kernels.sampling.cpu", "ramet.kernels.attention.cpu"))
    assert any(getattr(each, "name", "").startswith("attend_tiles") for each in steps)
