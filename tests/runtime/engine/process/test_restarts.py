"""A process that dies while it is started again is started once more, but not for ever."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.engine.process import EngineProcess, restarts
from ramet.runtime.engine.process.restarts import MAX_FAILED_STARTS, RestartPolicy
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def kill(engine: EngineProcess) -> None:
    assert engine.process_id is not None
    os.kill(engine.process_id, signal.SIGKILL)


def engine_unless(broken: Path) -> Engine:
    """Fails to start while the file is there."""
    if broken.exists():
        raise ValueError("the model's file is damaged")
    return scripted_engine()


def test_one_that_is_killed_while_it_starts_is_started_again() -> None:
    with EngineProcess(scripted_engine, scripted_tokenizer()) as engine:
        for _ in range(3):
            pid = engine.process_id
            kill(engine)
            wait_for(lambda pid=pid: engine.process_id != pid)  # type: ignore[misc]
            assert isinstance(engine.error, EngineDeadError)
        wait_for(lambda: engine.error is None)
        ids = tuple(scripted_tokenizer().encode("x"))
        request = Request(prompt_token_ids=ids, params=SamplingParams(max_tokens=2))
        assert engine.submit(request).result(timeout=20)


def test_starts_that_keep_failing_end_with_a_named_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restarts, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(restarts, "MAX_FAILED_STARTS", 2)
    broken = tmp_path / "broken"
    with EngineProcess(partial(engine_unless, broken), scripted_tokenizer()) as engine:
        broken.touch()
        kill(engine)
        wait_for(lambda: getattr(engine.error, "code", "") == "engine_not_restarted")
        with pytest.raises(EngineDeadError, match="restart the server"):
            engine.stats()
        assert caplog.text.count("the engine can't be started again") == 2
        assert "the model's file is damaged" in caplog.text


def test_closing_does_not_wait_for_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restarts, "_FIRST_PAUSE_S", 600.0)
    monkeypatch.setattr(restarts, "_LONGEST_PAUSE_S", 600.0)
    broken = tmp_path / "broken"
    engine = EngineProcess(partial(engine_unless, broken), scripted_tokenizer())
    broken.touch()
    kill(engine)  # soon after its start, so that a pause follows
    engine._supervisor.join(0.5)
    engine.close()
    assert not engine._supervisor.is_alive()


def test_pauses_grow_and_a_start_that_succeeds_begins_them_anew() -> None:
    policy = RestartPolicy()
    fail = partial(policy.next_pause_s, 3.0, has_served=False)
    assert [fail() for _ in range(4)] == [0.5, 1.0, 2.0, 4.0]
    assert policy.next_pause_s(3.0, has_served=True) == 0.0
    assert policy.next_pause_s(0.1, has_served=True) == 0.5
    pauses = [fail() for _ in range(MAX_FAILED_STARTS)]
    assert pauses[0] == 0.5
    assert max(pauses[:-1]) == 30.0
    assert pauses[-1] is None
