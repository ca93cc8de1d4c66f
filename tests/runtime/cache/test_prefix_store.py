"""Prefixes that outlive the engine, and files that can't be trusted."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import stat
import struct

import pytest

from ramet.runtime.api.errors import InvalidParameterError, ModelLoadError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.cache.prefix_store import PrefixStore
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

PROMPT = tuple(range(40, 140))
PARAMS = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)


def engine_with(folder, fingerprint="model-a", **runner_args) -> Engine:
    tokenizer = scripted_tokenizer()
    runner = ScriptedModel(tokenizer, **runner_args)
    config = EngineConfig(prefix_store=str(folder))
    return Engine(runner, tokenizer, config, fingerprint=fingerprint)


def cached_after_restart(folder, prompt=PROMPT, salt="", **kwargs) -> int:
    with engine_with(folder, **kwargs) as engine:
        engine.check()
        request = Request(prompt_token_ids=prompt, params=PARAMS, cache_salt=salt)
        done = engine.submit(request).result(10)
        assert done.token_ids == engine._runner.continuation(prompt, 4)
        return done.usage.cached_tokens


@pytest.fixture
def stored(tmp_path):
    """A folder with the prefixes of an engine that has been closed."""
    with engine_with(tmp_path) as engine:
        for _ in range(2):
            engine.submit(Request(prompt_token_ids=PROMPT, params=PARAMS)).result(10)
        private = Request(prompt_token_ids=(7,) * 40, params=PARAMS, cache_salt="secret")
        engine.submit(private).result(10)
    return tmp_path


def test_the_first_request_after_a_restart_is_warm(stored):
    assert cached_after_restart(stored) == len(PROMPT) - 1


def test_salted_prefixes_are_never_stored(stored):
    assert cached_after_restart(stored, (7,) * 40, "secret") == 0
    assert cached_after_restart(stored, (7,) * 40) == 0


def test_another_model_or_page_size_starts_cold(stored, caplog):
    assert cached_after_restart(stored, fingerprint="model-b") == 0
    with caplog.at_level(logging.WARNING):
        assert cached_after_restart(stored, page_size=8) == 0
    assert "another" in caplog.text


@pytest.mark.parametrize("where", [0.05, 0.5, 0.95])
def test_a_damaged_file_is_used_up_to_the_damage(stored, where, caplog):
    (path,) = stored.glob("*.bin")
    data = bytearray(path.read_bytes())
    data[int(where * len(data))] ^= 0x40
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert cached_after_restart(stored) < len(PROMPT) - 1
    assert "from the first damaged page on" in caplog.text
    assert cached_after_restart(stored) == len(PROMPT) - 1  # rebuilt when that engine closed


@pytest.mark.parametrize("size", [0, 10, 300, 1000])
def test_a_truncated_file_stops_nothing(stored, size):
    (path,) = stored.glob("*.bin")
    path.write_bytes(path.read_bytes()[:size])
    assert cached_after_restart(stored) < len(PROMPT)


def test_a_page_after_one_that_is_not_full_stops_nothing(stored, caplog):
    """Right digests, and a tree that can't be: the second page follows a page of three tokens."""
    (path,) = stored.glob("*.bin")
    header, _, records = path.read_bytes().partition(b"\n")
    page_bytes = json.loads(header)["page_bytes"]
    page = records[8 + 4 * 16 :][:page_bytes]

    def record(parent, *token_ids):
        data = struct.pack(f"<{2 + len(token_ids)}i", parent, len(token_ids), *token_ids) + page
        return data + hashlib.blake2b(data, digest_size=16).digest()

    path.write_bytes(header + b"\n" + record(-1, *PROMPT[:3]) + record(0, *PROMPT[3:9]))
    with caplog.at_level(logging.WARNING):
        assert cached_after_restart(stored) == 3
    assert "from the first damaged page on" in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
@pytest.mark.parametrize("place", ["file", "folder"])
def test_what_others_may_write_is_not_loaded(stored, place, caplog):
    (path,) = stored.glob("*.bin")
    writable = path if place == "file" else stored
    writable.chmod(writable.stat().st_mode | 0o020)
    with caplog.at_level(logging.WARNING):
        assert cached_after_restart(stored) == 0
    assert "others may write" in caplog.text


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
def test_stored_prompts_are_private_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        folder = tmp_path / "new" / "store"
        cached_after_restart(folder)
    finally:
        os.umask(before)
    (path,) = folder.glob("*.bin")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (folder, path)] == [0o700, 0o600]
    assert cached_after_restart(folder) > 0


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with caplog.at_level(logging.WARNING), engine_with(blocked / "store") as engine:
        assert "can't be stored" in caplog.text  # told at the start already
        engine.submit(Request(prompt_token_ids=PROMPT, params=PARAMS)).result(10)
        assert engine.save_prefixes() == 0
    assert "not stored" in caplog.text


def test_a_folder_that_can_be_written_is_made_and_left_empty_at_the_start(tmp_path, caplog):
    folder = tmp_path / "new" / "store"
    with caplog.at_level(logging.WARNING), engine_with(folder):
        assert list(folder.iterdir()) == []
    assert not caplog.records


def test_a_full_disk_stops_nothing_and_spoils_nothing(stored, monkeypatch, caplog):
    (path,) = stored.glob("*.bin")
    before = path.read_bytes()
    write = PrefixStore._write

    def fill_up(self, file, pages, *args):
        write(self, file, pages[:2], *args)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(PrefixStore, "_write", fill_up)
    with caplog.at_level(logging.WARNING), engine_with(stored) as engine:
        engine.submit(Request(prompt_token_ids=PROMPT[:50], params=PARAMS)).result(10)
        assert engine.save_prefixes() == 0
        done = engine.submit(Request(prompt_token_ids=PROMPT, params=PARAMS)).result(10)
        assert done.usage.cached_tokens == len(PROMPT) - 1
    assert "No space left" in caplog.text
    assert list(stored.iterdir()) == [path]
    assert path.read_bytes() == before


def test_a_store_larger_than_the_pool_fills_half_of_it(stored):
    with engine_with(stored, num_pages=8) as engine:
        engine.check()
        assert engine.stats().num_cached_pages == 4


def test_a_runner_without_page_storage_is_refused_by_name(tmp_path):
    class Bare(ScriptedModel):
        page_storage = None

    with pytest.raises(InvalidParameterError, match="Bare"):
        Engine(
            Bare(scripted_tokenizer()),
            scripted_tokenizer(),
            EngineConfig(prefix_store=str(tmp_path)),
            fingerprint="x",
        )


@pytest.mark.model
def test_the_model_says_the_same_from_stored_pages(tmp_path):
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    config = EngineConfig(num_pages=40, prefix_store=str(tmp_path))
    outputs = []
    for expected_cached in (0, None):
        with Engine.from_model("smollm2", config) as engine:
            done = engine.generate("The quick brown fox jumps over the lazy dog. " * 6, PARAMS)
            outputs.append(done.token_ids)
            if expected_cached is None:
                assert done.usage.cached_tokens == done.usage.prompt_tokens - 1
            else:
                assert done.usage.cached_tokens == expected_cached
    assert outputs[0] == outputs[1]
