"""The command line: what it prints, and how it says what is wrong."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ramet.cli import app
from ramet.cli.program_arguments import load_program, parse_arguments
from ramet.kernels.cpu_support.features import best_attention_path
from ramet.lang import UsageError
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model import runners

PROGRAM = """
from typing import Literal
from ramet.lang import program

@program
def greet(s, name: str, times: int = 1, tags: list[str] = (),
          color: Literal["red", "blue"] = "red", *rest, **more):
    s.user(f"Greet {name} {times} times")
    s.gen("greeting", max_tokens=8)
"""


@pytest.fixture
def program_file(tmp_path: Path) -> Path:
    path = tmp_path / "greeting_program.py"
    path.write_text(PROGRAM)
    return path


def test_every_command_has_help() -> None:
    for command in ("demo", "run", "graph", "replay", "diff", "serve", "check", "bench", "info"):
        result = CliRunner().invoke(app, [command, "--help"])
        assert result.exit_code == 0, result.output


def test_info_shows_where_compiled_code_is(tmp_path: Path) -> None:
    variables = {"RAMET_CACHE_DIR": str(tmp_path), "COLUMNS": "300"}
    result = CliRunner().invoke(app, ["info"], env=variables)
    assert result.exit_code == 0, result.output
    assert f"{tmp_path}: will be compiled at the first start" in " ".join(result.output.split())


def test_info_reports_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    variables = {"RAMET_CACHE_DIR": str(tmp_path / "file"), "COLUMNS": "300"}
    result = CliRunner().invoke(app, ["info"], env=variables)
    told = " ".join(result.output.split())
    assert f"{tmp_path}/file, which isn't writable: will be compiled" in told


def test_info_shows_what_runs_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_CPU_DOT_PATH", "portable")
    monkeypatch.setattr(runners, "_has_gpu", lambda: False)
    result = CliRunner().invoke(app, ["info"], env={"COLUMNS": "60"})
    assert result.exit_code == 0, result.output
    told = [re.split("  +", line.strip()) for line in result.output.splitlines()]
    assert ["models run on", "the CPU, by compiled kernels"] in told
    assert ["int8 dot product", "portable"] in told
    assert ["attention", best_attention_path()] in told
    assert "…" not in result.output


def test_a_dot_product_that_the_cpu_lacks_is_reported_in_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAMET_CPU_DOT_PATH", "abacus")
    result = CliRunner().invoke(app, ["info"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert "RAMET_CPU_DOT_PATH is 'abacus'; this machine supports" in result.output
    result = CliRunner().invoke(app, ["bench", "one-stream"])
    assert isinstance(result.exception, ModelLoadError)
    assert "RAMET_CPU_DOT_PATH is 'abacus'" in result.exception.message


def test_serve_help_fits_a_screen() -> None:
    result = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "120"})
    assert len(result.output.splitlines()) <= 50


def test_arguments_are_validated_by_their_annotations(program_file: Path) -> None:
    program = load_program(f"{program_file}:greet")
    words = ["--name", "Ada", "--times=3", "--tags", '["a", "b"]']
    assert parse_arguments(program, words) == {"name": "Ada", "times": 3, "tags": ["a", "b"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --name"),
        (["--name"], "needs a value"),
        (["--name", "A", "--times", "many"], "--times 'many'"),
        (["--name", "A", "--color", "green"], "'red' or 'blue'"),
        (["--nam", "A"], "takes"),
        (["--name", "A", "--rest", "1"], "takes"),
    ],
)
def test_wrong_arguments_are_named(program_file: Path, words: list[str], message: str) -> None:
    program = load_program(f"{program_file}:greet")
    with pytest.raises(typer.BadParameter, match=message):
        parse_arguments(program, words)


@pytest.mark.parametrize("target", ["nothing.py:x", "no-colon", "{file}:absent"])
def test_wrong_targets_are_named(program_file: Path, target: str) -> None:
    with pytest.raises(typer.BadParameter):
        load_program(target.format(file=program_file))


def test_graph_prints_the_tree(program_file: Path) -> None:
    result = CliRunner().invoke(app, ["graph", f"{program_file}:greet", "--name", "Ada"])
    assert result.exit_code == 0, result.output
    assert "greeting" in result.output


def test_an_unknown_load_is_named() -> None:
    result = CliRunner().invoke(app, ["bench", "nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output


@pytest.mark.parametrize("trace", ["nowhere/run.html", "run.txt"])
def test_a_trace_that_can_not_be_written_is_reported_before_the_run(
    program_file: Path, tmp_path: Path, trace: str
) -> None:
    words = ["run", f"{program_file}:greet", "--trace", str(tmp_path / trace), "--name", "Ada"]
    result = CliRunner().invoke(app, [*words, "--model", "no-such-model"])
    assert result.exit_code == 2
    assert ".html or .json" in " ".join(result.output.split())


def test_a_program_s_file_may_be_named_like_a_module(tmp_path: Path) -> None:
    import json

    path = tmp_path / "json.py"
    path.write_text(PROGRAM)
    assert load_program(f"{path}:greet").name == "greet"
    assert sys.modules["json"] is json
    found = importlib.machinery.PathFinder.find_spec("json")
    assert found is not None
    assert found.origin == json.__file__


@pytest.fixture(autouse=True)
def module_search_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a program adds its folder; no other test shall see it."""
    monkeypatch.setattr(sys, "path", [*sys.path])


def test_bench_fails_immediately_where_no_server_is() -> None:
    result = CliRunner().invoke(app, ["bench", "json", "--url", "http://127.0.0.1:9"])
    assert isinstance(result.exception, UsageError)
    assert "no server answers" in result.exception.message


def test_the_version_is_printed() -> None:
    printed = CliRunner().invoke(app, ["--version"])
    assert printed.exit_code == 0
    assert printed.output == f"ramet {importlib.metadata.version('ramet')}\n"


@pytest.mark.model
def test_info_shows_a_models_card() -> None:
    result = CliRunner().invoke(app, ["info", "smollm2"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    for expected in (
        "llama, 135 million parameters",
        "30 of 576; 9 heads of 64, 3 for keys",
        "8,192 tokens",
        "49,152 tokens",
        "'<|im_end|>'",
        "has no tools: text describes them",
        "4,096 tokens 91 MiB, 8,192 tokens 182 MiB",
    ):
        assert expected in result.output, expected
    result = CliRunner().invoke(app, ["info", "nonesuch"])
    assert result.exit_code != 0
