"""Recorded traces: the tree of prefixes and what came when, and nothing of the text."""

from __future__ import annotations

import gzip
import os
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import InvalidParameterError, ModelLoadError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.engine.monitoring.cache_trace import TraceWriter, read_trace
from ramet.runtime.model.files.locate import locate_model

PAGE = 4


def record(path, requests: list[tuple[list[int], str]]) -> None:
    writer = TraceWriter(path, PAGE, 0.0)
    for time, (tokens, salt) in enumerate(requests):
        request = Request(prompt_token_ids=tuple(tokens[:-1]), cache_salt=salt)
        writer.add(request, np.array(tokens, np.int32), 1, float(time))
    writer.close()


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 1), min_size=2, max_size=30), st.sampled_from(["", "s"])),
        min_size=1,
        max_size=12,
    )
)
def test_equal_pages_are_equal_prefixes_under_one_salt(tmp_path_factory, requests):
    path = tmp_path_factory.mktemp("trace") / "trace.gz"
    record(path, requests)
    prefixes: dict[int, tuple[str, tuple[int, ...]]] = {}
    for (tokens, salt), traced in zip(requests, read_trace(path), strict=True):
        assert len(traced.pages) == (len(tokens) - 1) // PAGE
        for index, page in enumerate(traced.pages):
            prefix = salt, tuple(tokens[: (index + 1) * PAGE])
            assert prefixes.setdefault(page, prefix) == prefix
    assert len(set(prefixes.values())) == len(prefixes)


def test_recordings_add_up_and_share_nothing(tmp_path):
    path = tmp_path / "trace.gz"
    for _ in range(2):
        record(path, [([1] * 13, ""), ([1] * 9, "")])
    first, second, third, fourth = read_trace(path)
    assert first.pages[:2] == second.pages
    assert third.pages[:2] == fourth.pages
    assert not set(first.pages) & set(third.pages)
    assert third.time_s >= second.time_s


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "trace.gz"
    rng = random.Random(0)
    record(path, [([rng.randrange(1000) for _ in range(99)], "") for _ in range(500)])
    path.write_bytes(path.read_bytes()[:-900])
    assert 0 < len(read_trace(path)) < 500


def test_what_is_no_trace_is_refused(tmp_path):
    path = tmp_path / "other.gz"
    path.write_bytes(gzip.compress(b'{"format": 99}\n'))
    with pytest.raises(ValueError, match="not a trace"):
        read_trace(path)


def test_a_file_that_cannot_be_written_is_reported_at_the_start(make_engine, tmp_path):
    with pytest.raises(InvalidParameterError, match="trace"):
        make_engine(config=EngineConfig(record_trace=str(tmp_path / "no" / "trace.gz")))


def test_the_engine_records_what_it_serves(make_engine, tmp_path):
    path = tmp_path / "trace.gz"
    engine = make_engine(config=EngineConfig(record_trace=str(path)), page_size=PAGE)
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    hint = ProgramHint(
        program_id="p",
        program="secret-program",
        node_id="3",
        steps_to_next_use=2,
        remaining_uses=3,
        tool="secret-tool",
    )
    prompt = tuple(range(60, 80))
    for salt, salted_hint in (("", hint), ("", None), ("private", hint)):
        request = Request(prompt_token_ids=prompt, params=params, cache_salt=salt, hint=salted_hint)
        engine.submit(request).result(10)
    engine.close()
    first, second, third = read_trace(path)
    assert first.pages == second.pages
    assert len(first.pages) == 25 // PAGE
    assert not set(first.pages) & set(third.pages)
    assert (first.num_prompt_tokens, first.num_output_tokens) == (20, 6)
    assert (first.program, second.program, third.program) == (0, -1, 0)
    assert (first.place, second.place, third.place) == (0, -1, 0)
    assert (first.steps_to_next_use, first.remaining_uses, first.tool) == (2, 3, True)
    assert (second.steps_to_next_use, second.remaining_uses, second.tool) == (None, None, False)
    assert first.time_s <= second.time_s <= third.time_s
    content = gzip.decompress(path.read_bytes())
    assert b"secret" not in content
    assert b"private" not in content


@pytest.mark.model
def test_a_model_whose_engine_cannot_start_is_closed(tmp_path):
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    before = set(threading.enumerate())
    config = EngineConfig(num_pages=16, record_trace=str(tmp_path / "no" / "trace.gz"))
    with pytest.raises(InvalidParameterError, match="trace"):
        Engine.from_model("smollm2", config)
    assert set(threading.enumerate()) <= before  # those of tests before this one may end


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs POSIX files")
def test_only_a_file_of_the_user_s_own_is_written(tmp_path):
    path = tmp_path / "trace.gz"
    record(path, [([1] * 13, "")])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o666)
    with pytest.raises(InvalidParameterError, match="others may write"):
        TraceWriter(path, PAGE, 0.0)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # opening it would wait for a reader
    with pytest.raises(InvalidParameterError, match="can't be written"):
        TraceWriter(pipe, PAGE, 0.0)
