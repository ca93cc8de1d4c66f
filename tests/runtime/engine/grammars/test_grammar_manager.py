"""Promised: an engine keeps the automata of constraints over a restart, and says what they take."""

from __future__ import annotations

from pathlib import Path

from ramet.grammars import JsonSchema
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.testing.scripted_engine import scripted_engine

SCHEMA = JsonSchema({"type": "string", "pattern": "^[^/]{3,9}(foo|bar)+[a-z]{2,20}$"})


def test_automata_are_kept_over_a_restart(tmp_path: Path) -> None:
    folder = tmp_path / "grammars"
    config = EngineConfig(grammar_cache=str(folder))
    with scripted_engine(config=config) as engine:
        assert engine.stats().num_grammar_bytes == 0
        engine._compiler.compile(SCHEMA)
        assert engine.stats().num_grammars == 1
        assert engine.stats().num_grammar_bytes > 0
    entries = sorted(folder.iterdir())
    assert entries
    with scripted_engine(config=config) as engine:
        engine._compiler.compile(SCHEMA)
        assert engine._compiler.stats().num_read == len(entries)
    assert sorted(folder.iterdir()) == entries


def test_a_folder_that_cannot_be_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = EngineConfig(grammar_cache=str(tmp_path / "file" / "under"))
    with scripted_engine(config=config) as engine:
        assert engine._compiler.compile(SCHEMA).matcher()
