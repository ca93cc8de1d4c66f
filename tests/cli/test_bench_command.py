"""``ramet bench``: its options, its exit code, its table and its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ramet.cli import app
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.server import RunningServer, running_server

COUNTS = ("requests", "errors", "prompt_tokens", "output_tokens", "tokens_least")


@pytest.mark.parametrize("option", ["--rate", "--concurrency", "--groups", "--repeat"])
def test_a_number_that_paces_nothing_is_refused_by_its_option(option: str) -> None:
    result = CliRunner().invoke(app, ["bench", "shared-prefix", option, "0"])
    assert result.exit_code == 2
    assert option in result.output


def test_an_option_of_another_load_is_refused() -> None:
    result = CliRunner().invoke(app, ["bench", "one-stream", "--groups", "3"])
    assert result.exit_code == 2
    assert "--groups" in result.output


def test_two_baselines_are_refused() -> None:
    words = ["bench", "json", "--no-cache", "--compare", "http://127.0.0.1:9"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    assert "--compare" in result.output


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    config = EngineConfig(cache_bytes=64 << 20)
    with Engine.from_model("smollm2", config) as engine, running_server(engine) as server:
        yield server


SHAPE = {"groups": 2, "per-group": 2, "prefix-len": 40, "suffix-len": 5, "output-len": 4}
WORDS = ["--repeat=2", "--concurrency=2", *(f"--{name}={size}" for name, size in SHAPE.items())]


@pytest.mark.model
def test_two_servers_get_the_same_requests_in_turn(server: RunningServer) -> None:
    words = ["bench", "shared-prefix", "--url", server.url, "--compare", server.url, *WORDS]
    result = CliRunner().invoke(app, [*words, "--json", "--seed", "json"])
    assert result.exit_code == 0, result.output
    *lines, last = map(json.loads, result.stdout.splitlines())
    assert [line["repeat"] for line in lines] == [0, 0, 1, 1]
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        for count in COUNTS:
            assert first[count] == second[count]
        # Both are one server: the second time it computes only each prompt's last token.
        assert second["tokens_computed"] == second["requests"]
    assert lines[0]["tokens_computed"] == lines[0]["tokens_least"] == 2 * (40 + 2 * 5)
    assert lines[0]["prompt_tokens"] == 4 * 45
    assert lines[0]["output_tokens"] == 4 * 4
    assert last["ratios"]["tokens_computed"] == 25


@pytest.mark.model
def test_a_table_fits_a_terminal_and_says_which_is_better(
    server: RunningServer, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    words = ["bench", "shared-prefix", "--url", server.url, "--no-cache", "--seed", "table"]
    words += ["--slo", "ttft=60", "--price-per-hour", "1", "--html", str(page)]
    result = CliRunner().invoke(app, [*words, *WORDS], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "…" not in result.output
    (line,) = [each for each in result.output.splitlines() if "prompt computed" in each]
    assert [cell.strip() for cell in line.split("│")[2:5]] == ["100", "180", "1.80x fewer"]
    assert "goodput counts requests with ttft ≤ 60 s" in result.output
    assert "<svg" in page.read_text()


@pytest.mark.model
def test_natural_text_runs_through_the_chat_api(server: RunningServer) -> None:
    words = ["bench", "chat", "--url", server.url, "--requests=2", "--output-len=8", "--repeat=1"]
    result = CliRunner().invoke(app, [*words, "--json"])
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert (summary["requests"], summary["errors"], summary["tokens_least"]) == (4, 0, None)
    assert summary["tokens_cached"] > 0
