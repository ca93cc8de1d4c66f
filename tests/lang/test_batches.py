"""Promised: batches run in loops of any kind, in part again after a stop, and are shown."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

from ramet.lang import BackendError, State, UsageError, program
from ramet.lang.backends.recorded import RecordedBackend
from ramet.lang.progress import progress_bar

ITEMS = [{"topic": topic} for topic in ("a", "b", "c", "d")]


@program
def asks(s: State, topic: str) -> tuple[int, str]:
    s.user(topic)
    number = s.gen("n", int)
    s.user("Which?")
    return number.value, s.select("c", ["x", "y"]).value


def answers(failing: str = "") -> dict[str, Any]:
    def number(call: Any) -> Any:
        topic = call.prompt.messages[0].content
        return ValueError("no") if topic == failing else str(ord(topic))

    return {"n": number, "c": "y"}


def test_runs_come_as_they_end(scripted) -> None:
    backend = scripted(answers("c"))
    ended = dict(asks.as_completed(ITEMS, backend=backend, max_concurrency=2))
    assert sorted(ended) == [0, 1, 2, 3]
    assert [ended[index].result for index in (0, 1, 3)] == [(97, "y"), (98, "y"), (100, "y")]
    assert ended[2].error is not None


def test_what_still_runs_is_cancelled_with_the_iterator(scripted) -> None:
    async def number(call: Any) -> str:
        if call.prompt.messages[0].content != "a":
            await asyncio.Event().wait()
        return "1"

    backend = scripted({"n": number, "c": "x"})
    runs = asks.as_completed(ITEMS, backend=backend)
    assert next(runs)[0] == 0
    runs.close()
    deadline = time.monotonic() + 5
    while len(backend.ended_programs) < 4:
        assert time.monotonic() < deadline
        time.sleep(0.001)


async def test_a_batch_runs_on_the_callers_loop(scripted) -> None:
    runs = await asks.arun_batch(ITEMS, backend=scripted(answers()), max_concurrency=3, seed=1)
    assert [run.result for run in runs] == [(97, "y"), (98, "y"), (99, "y"), (100, "y")]
    with pytest.raises(UsageError, match="item 0"):
        await asks.arun_batch([{"topik": "x"}], backend=scripted())


def test_a_batch_goes_on_where_it_was_cut_off(scripted, tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    first = scripted(answers("c"))
    before = asks.run_batch(ITEMS, backend=first, resume=path)
    assert [run.error is None for run in before] == [True, True, False, True]
    assert len(path.read_text().splitlines()) == 3
    with path.open("a") as file:
        file.write('{"arguments": {"topic": "c"}, "tr')  # a crash

    second = scripted(answers())
    after = asks.run_batch(ITEMS, backend=second, resume=path)
    assert [run.result for run in after] == [(97, "y"), (98, "y"), (99, "y"), (100, "y")]
    assert [call.prompt.messages[0].content for call in second.calls] == ["c", "c"]
    assert [a.trace.seed == b.trace.seed for a, b in zip(before, after, strict=True)] == [
        True, True, False, True,
    ]  # fmt: skip
    third = scripted()
    assert len(asks.run_batch(ITEMS, backend=third, resume=path)) == 4
    assert not third.calls
    asks.run_batch([*ITEMS, ITEMS[0]], backend=second, resume=path)  # each record is used once
    assert len(path.read_text().splitlines()) == 5


def test_a_file_that_is_no_record_is_refused_by_its_line(scripted, tmp_path: Path) -> None:
    path = tmp_path / "batch.jsonl"
    path.write_text(json.dumps({"arguments": {}}) + "\n")
    with pytest.raises(UsageError, match="line 1"):
        asks.run_batch(ITEMS, backend=scripted(), resume=path)


def test_a_recorded_run_needs_no_model(scripted) -> None:
    trace = asks.run("a", backend=scripted(answers())).trace
    run = asks.run("a", backend=RecordedBackend(trace))
    assert run.result == (97, "y")
    assert run.trace.usage == trace.usage
    del trace.texts["3"]
    with pytest.raises(Exception, match="no text of node 3") as caught:
        asks.run("a", backend=RecordedBackend(trace))
    assert isinstance(caught.value.__cause__, BackendError)


def test_the_bar_counts_failures(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("b", 3, shown=True) as note:
        for has_failed in (False, True, True):
            note(has_failed)
    assert "2 failed" in capsys.readouterr().err


def test_a_notebook_has_a_bar_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)
    module = types.ModuleType("IPython.display")
    module.HTML = str  # type: ignore[attr-defined]
    module.display = lambda html, display_id: shown.append(html) or handle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console.Console.is_jupyter", True, raising=False)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    with progress_bar("<b>", 2, shown=True) as note:
        note(False)
        note(True)
    assert "<b>" not in shown[-1]
    assert "2/2 1 failed" in shown[-1]
