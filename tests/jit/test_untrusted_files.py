"""Compiled code is loaded only where nobody but root and the user can have written it."""

from __future__ import annotations

import hashlib
import os
import pickle

import pytest

from ramet.jit import disk, jit

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")


def triple(x):
    return 3 * x


def quadruple(x):
    return 4 * x


class Planted:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    folder = tmp_path / "above" / "cache"
    monkeypatch.setenv("RAMET_CACHE_DIR", str(folder))
    return folder


def call(function=triple):
    """Calls a function as a new process would."""
    return jit("int64(int64)")(function)(14)


def only_file(folder):
    [path] = folder.glob("*.bin")
    return path


def plant(path, marker):
    data = pickle.dumps(Planted(marker))
    path.write_bytes(disk._checksum(path.name, data) + data)


@pytest.mark.parametrize("permission", [0o020, 0o002])
@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_what_others_may_write_is_never_loaded(folder, tmp_path, compilations, place, permission):
    call()
    path = only_file(folder)
    plant(path, tmp_path / "ran")
    writable = {"file": path, "folder": folder, "above": folder.parent}[place]
    writable.chmod(writable.stat().st_mode | permission)
    assert not jit("int64(int64)")(triple).is_compiled
    assert call() == 42
    assert not (tmp_path / "ran").exists()
    assert compilations == ["triple"] * 2


def test_a_file_that_others_may_write_is_replaced(folder, compilations):
    call()
    only_file(folder).chmod(0o666)
    assert [call(), call()] == [42, 42]
    assert compilations == ["triple"] * 2
    assert only_file(folder).stat().st_mode & 0o777 == 0o644


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives away")
@pytest.mark.parametrize("place", ["file", "folder", "above"])
def test_what_another_user_owns_is_never_loaded(folder, tmp_path, compilations, place):
    call()
    path = only_file(folder)
    plant(path, tmp_path / "ran")
    os.chown({"file": path, "folder": folder, "above": folder.parent}[place], 65534, 65534)
    assert call() == 42
    assert not (tmp_path / "ran").exists()
    assert compilations == ["triple"] * 2


def test_a_sticky_folder_above_may_be_writable_by_all(folder, compilations):
    call()
    folder.parent.chmod(0o1777)
    assert call() == 42
    assert compilations == ["triple"]


def test_nothing_is_kept_where_others_may_write(folder, compilations, caplog):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert [call(), call()] == [42, 42]
    assert compilations == ["triple"] * 2
    assert list(folder.iterdir()) == []
    assert caplog.text.count(f"others may write to {folder}") == 1


def test_the_next_folder_is_used_where_one_is_not_trusted(tmp_path, monkeypatch, compilations):
    shared, own = tmp_path / "shared", tmp_path / "own"
    shared.mkdir()
    shared.chmod(0o777)
    monkeypatch.setattr(disk, "cache_folders", lambda: (shared, own))
    assert [call(), call()] == [42, 42]
    assert compilations == ["triple"]
    assert only_file(own)


def test_folders_are_made_for_the_user_alone_under_any_umask(folder, compilations):
    before = os.umask(0)
    try:
        assert [call(), call()] == [42, 42]
    finally:
        os.umask(before)
    assert compilations == ["triple"]


@pytest.mark.parametrize("content", [b"no pickle", pickle.dumps((1, 2)), pickle.dumps(None)])
def test_foreign_content_with_a_right_checksum_is_compiled_again(folder, compilations, content):
    call()
    path = only_file(folder)
    path.write_bytes(disk._checksum(path.name, content) + content)
    assert [call(), call()] == [42, 42]
    assert compilations == ["triple"] * 2


def test_another_function_s_file_is_not_taken(folder, compilations):
    call()
    path = only_file(folder)
    call(quadruple)
    [other] = set(folder.glob("*.bin")) - {path}
    path.write_bytes(other.read_bytes())
    assert call() == 42
    assert compilations == ["triple", "quadruple", "triple"]


def test_a_checksum_of_the_data_alone_is_wrong(folder, compilations):
    call()
    path = only_file(folder)
    data = path.read_bytes()[disk._CHECKSUM_BYTES :]
    path.write_bytes(hashlib.sha256(data).digest() + data)
    assert call() == 42
    assert compilations == ["triple"] * 2


def test_a_pipe_in_a_file_s_place_holds_nothing_up(folder, compilations):
    call()
    path = only_file(folder)
    path.unlink()
    os.mkfifo(path, 0o600)
    assert call() == 42
    assert compilations == ["triple"] * 2
