"""A run in the terminal."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ramet.cli import programs
from ramet.cli.live import run_live
from ramet.cli.root import app
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


def test_a_run_is_shown_with_its_result_cost_graph_and_trace(
    scripted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(record=True, width=100)
    backend = scripted({"n": "21", "said": "[red]words[/red]"})
    run_live(work, {"start": 1}, backend, tmp_path / "t.json", console)
    printed = console.export_text()
    for wanted in ("21", "double", "[red]words[/red]", "calls of the model", "gen said"):
        assert wanted in printed
    assert capsys.readouterr().out.endswith("43\n")
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


@program
def answers(s: State, topic: str, *, shout: bool = False) -> dict[str, str]:
    said = s.gen("said").value
    return {topic: said.upper() if shout else said}


@pytest.fixture
def cli(scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs a command of which every program is ``answers``, on a scripted backend."""
    backend = scripted(default="yes")
    monkeypatch.setattr(programs, "_backend", lambda model, url: nullcontext(backend))
    monkeypatch.setattr(programs, "load_program", lambda target: answers)
    monkeypatch.chdir(tmp_path)
    return lambda *words: (CliRunner().invoke(app, words), backend)


def test_the_result_alone_is_on_the_standard_output(cli) -> None:
    words = ("--temperature", "0.5", "--max-tokens=7", "--seed", "3")
    done, backend = cli("run", "x.py:answers", "--topic", "t", "--shout", "--json", *words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"t": "YES"}
    assert "calls of the model" in done.stderr
    (call,) = backend.calls
    assert (call.params.temperature, call.params.max_tokens) == (0.5, 7)
    done, _ = cli("run", "x.py:answers", "--topic=t", "--no-shout", "--quiet")
    assert (done.stdout, done.stderr) == ("{'t': 'yes'}\n", "")


def test_help_shows_the_programs_own_arguments(cli) -> None:
    done, _ = cli("run", "x.py:answers", "--help")
    for wanted in (
        "--topic  str  [required]",
        "--shout  bool  [default: False]",
        "--top-p",
        "--url",
    ):
        assert wanted in done.stdout
    done, _ = cli("run", "--help")
    assert "--quiet" in done.stdout
    assert cli("run")[0].exit_code == 2


def test_a_trace_is_replayed_and_compared(cli) -> None:
    words = ("--topic", "t", "--trace")
    assert cli("run", "x.py:answers", *words, "a.ramet.json")[0].exit_code == 0
    done, backend = cli("replay", "a.ramet.json", "x.py:answers")
    assert (done.exit_code, done.stdout) == (0, "the same texts\n")
    assert len(backend.calls) == 1  # that of the first run
    trace = json.loads(Path("a.ramet.json").read_text())
    trace["texts"]["0"] = "no"
    Path("b.ramet.json").write_text(json.dumps(trace))
    done, _ = cli("diff", "a.ramet.json", "b.ramet.json")
    assert done.exit_code == 1
    assert "said (node 0)\n  - 'yes'\n  + 'no'" in done.stdout
    assert cli("replay", "b.ramet.json", "x.py:answers", "--model", "m")[0].exit_code == 1


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
