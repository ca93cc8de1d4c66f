"""A run in the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from ramet.cli.live import run_live
from ramet.cli.run_view import watch
from ramet.lang import NodeFailedError, State, program, tool


@tool
def double(n: int) -> int:
    """Doubles."""
    return 2 * n


@program
def work(s: State, start: int) -> int:
    side = s.copy()
    n = side.gen("n", int)
    doubled = s.call(double, n=n)
    s += f"[bold]{doubled}[/bold] "
    s.gen("said")
    return doubled.value + start


def test_a_run_is_shown_with_its_result_cost_graph_and_trace(scripted, tmp_path: Path) -> None:
    console = Console(record=True, width=100)
    backend = scripted({"n": "21", "said": "[red]words[/red]"})
    run_live(work, {"start": 1}, backend, tmp_path / "t.json", console)
    printed = console.export_text()
    for wanted in ("21", "43", "double", "[red]words[/red]", "calls of the model", "gen said"):
        assert wanted in printed
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_failed_run_shows_what_failed_and_keeps_its_trace(scripted, tmp_path: Path) -> None:
    console = Console(record=True, width=100)
    backend = scripted({"n": ValueError("broke")})
    with pytest.raises(NodeFailedError):
        run_live(work, {"start": 1}, backend, tmp_path / "t.html", console)
    assert "broke" in console.export_text()
    assert "broke" in (tmp_path / "t.html").read_text()


def test_watch_raises_the_runs_error(scripted) -> None:
    run = work.start(1, backend=scripted({"n": "x"}))
    with pytest.raises(NodeFailedError):
        watch(run, Console(record=True, quiet=True))
