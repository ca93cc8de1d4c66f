"""Promised: grammars are kept within a bound in bytes, and automata on disk, whatever is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ramet.grammars import GrammarCompiler, JsonSchema, Regex, Vocabulary
from ramet.grammars.regular import regex_dfa
from ramet.grammars.regular.automata.store import AutomatonStore

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})
PATTERN = "^[^/]{3,9}(foo|bar)+[a-z]{2,20}$"
SCHEMA = JsonSchema({"type": "string", "pattern": PATTERN})
MAX = 50_000


def test_grammars_are_kept_within_a_bound() -> None:
    compiler = GrammarCompiler(BYTES, capacity=1000, max_bytes=3_000_000)
    for i in range(40):
        compiler.compile(JsonSchema({"enum": [f"value {i} {j}" for j in range(30)]}))
        stats = compiler.stats()
        assert stats.num_grammars >= 1
        # An eighth of them may have come since all were counted.
        assert stats.num_bytes <= 3_000_000 * 9 // 8 or stats.num_grammars == 1
    last = JsonSchema({"enum": [f"value 39 {j}" for j in range(30)]})
    assert compiler.find(last) is compiler.compile(last)
    assert compiler.find(JsonSchema({"enum": [f"value 0 {j}" for j in range(30)]})) is None


def test_automata_are_read_in_the_next_process(tmp_path: Path) -> None:
    first = GrammarCompiler(BYTES, store=AutomatonStore(tmp_path))
    first.compile(SCHEMA)
    first.compile(Regex(PATTERN))
    assert first.stats().num_read == 0
    assert first.stats().num_stored_bytes == sum(p.stat().st_size for p in tmp_path.iterdir()) > 0
    second = GrammarCompiler(BYTES, store=AutomatonStore(tmp_path))
    grammar = second.compile(SCHEMA)
    assert second.stats().num_read >= 2
    assert grammar.match('"abcfooxy"')
    assert not grammar.match('"ab/foox"')
    second.compile(Regex(PATTERN))


def test_what_is_read_is_what_was_made(tmp_path: Path) -> None:
    dfa = regex_dfa(PATTERN)
    store = AutomatonStore(tmp_path)
    store.get("x", lambda: dfa, MAX)
    again = AutomatonStore(tmp_path).get("x", lambda: pytest.fail("it is on disk"), MAX)
    assert again == dfa
    assert again.accepts(b"abcfooxy")
    # Another description, and a smaller limit, are made anew.
    assert store.get("y", lambda: regex_dfa("a"), MAX) == regex_dfa("a")
    assert store.get("x", lambda: regex_dfa("b"), 3) == regex_dfa("b")


@pytest.mark.parametrize("at", [0, 10, 24, 30, 100, 400, 5000])
def test_damaged_entries_are_made_again(tmp_path: Path, at: int) -> None:
    dfa = regex_dfa(PATTERN)
    AutomatonStore(tmp_path).get("x", lambda: dfa, MAX)
    [path] = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    for damaged in (data[:at], data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], data + b"x"):
        path.write_bytes(damaged)
        made = []
        AutomatonStore(tmp_path).get("x", lambda made=made: made.append(1) or dfa, MAX)
        assert made
        assert AutomatonStore(tmp_path).get("x", lambda: pytest.fail("mended"), MAX) == dfa


def test_foreign_files_and_folders_stop_nothing(tmp_path: Path) -> None:
    dfa = regex_dfa(PATTERN)
    AutomatonStore(tmp_path).get("x", lambda: dfa, MAX)
    [path] = tmp_path.iterdir()
    path.unlink()
    path.mkdir()
    assert AutomatonStore(tmp_path).get("x", lambda: dfa, MAX) is dfa
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    (tmp_path / "file").write_text("")
    store = AutomatonStore(tmp_path / "file" / "under")
    assert store.get("x", lambda: dfa, MAX) is dfa
    assert store.num_written == store.num_bytes == 0


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
@pytest.mark.parametrize("place", ["file", "folder"])
def test_what_others_may_write_is_made_again(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "automata"
    AutomatonStore(folder).get("x", lambda: regex_dfa(PATTERN), MAX)
    [path] = folder.iterdir()
    writable = path if place == "file" else folder
    writable.chmod(0o777)
    dfa = regex_dfa("a{30}")  # nothing that is loaded
    assert AutomatonStore(folder).get("x", lambda: dfa, MAX) is dfa
    if place == "folder":
        assert AutomatonStore(folder).get("y", lambda: dfa, MAX) is dfa
        assert list(folder.iterdir()) == [path]


def test_a_disk_that_is_full_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    dfa = regex_dfa(PATTERN)
    monkeypatch.setattr("os.replace", full)
    store = AutomatonStore(tmp_path)
    assert store.get("x", lambda: dfa, MAX) is dfa
    assert list(tmp_path.iterdir()) == []


def test_the_store_is_bounded(tmp_path: Path) -> None:
    store = AutomatonStore(tmp_path, max_bytes=20_000)
    for i in range(60):
        store.get(str(i), lambda i=i: regex_dfa(f"{PATTERN}x{{{i}}}"), MAX)
    size = sum(p.stat().st_size for p in tmp_path.iterdir())
    assert 0 < size == store.num_bytes <= 20_000
