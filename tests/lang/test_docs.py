"""The pages' Python runs, page by page, as a newcomer would paste it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ramet.lang import ScriptedBackend, set_default_backend
from ramet.runtime.engine import Engine

ROOT = Path(__file__).parents[2]


def snippets(page: str) -> str:
    """A page's Python, each line where it stands in the page, so that errors say where."""
    lines: list[str] = []
    is_python = False
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("```"):
            is_python = line == "```python"
            line = ""
        lines.append(line if is_python else "")
    return "\n".join(lines)


def run_page(page: str, **names: Any) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "page", **names}
    exec(compile(snippets(page), page, "exec", dont_inherit=True), namespace)
    return namespace


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch, scripted_engine: Any) -> list[Engine]:
    """Models are opened as scripted engines; those that were, in order."""
    opened: list[Engine] = []

    def from_model(model: str = "smollm2", config: Any = None) -> Engine:
        assert model == "smollm2"
        opened.append(scripted_engine())
        return opened[-1]

    monkeypatch.setattr(Engine, "from_model", from_model)
    return opened


def test_the_quickstart_runs(engines: list[Engine], capsys: pytest.CaptureFixture[str]) -> None:
    names = run_page("docs/quickstart.md")
    assert re.match(r'\{ ?"city":', names["done"].text)
    assert len(engines) == 3
    assert len(capsys.readouterr().out) > 40


def test_the_page_on_the_language_runs(engines: list[Engine]) -> None:
    names = run_page("docs/dsl.md")
    run = names["run"]
    assert len(run["tip"]) == 3
    assert run.messages()[-1] == {"role": "assistant", "content": run.result}
    names["forms"].graph()
    call = {"tool_calls": [{"name": "forecast", "arguments": {"city": "Lisbon"}}]}
    set_default_backend(
        ScriptedBackend({"answer.turn1": call, "answer.turn2": {"answer": {"city": "Lisbon"}}})
    )
    try:
        plan = names["travel"].run("Sun or rain?").result
    finally:
        set_default_backend(None)
    assert plan == names["Plan"](city="Lisbon")
    for engine in engines:
        engine.check()


def test_the_page_on_constraints_runs() -> None:
    assert run_page("docs/constraints.md")["one_call_after_thinking"]


def test_every_page_with_python_is_run() -> None:
    with_clients = {"docs/server.md", "README.md"}  # need a server, or the model: tested elsewhere
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} | {"README.md"}
    run = {"docs/quickstart.md", "docs/dsl.md", "docs/constraints.md"}
    assert {page for page in pages if snippets(page).strip()} == run | with_clients


def test_the_readme_program_gives_what_it_says(scripted_engine: Any) -> None:
    code = (ROOT / "README.md").read_text().split("```python\n")[1].split("```")[0]
    code = code.replace('Engine.from_model("smollm2")', "engine_of_the_test")
    namespace: dict[str, Any] = {"__name__": "page", "engine_of_the_test": scripted_engine()}
    code = code.replace("backend=engine)", "backend=engine, seed=1, max_tokens=400)")
    exec(compile(code, "README.md", "exec", dont_inherit=True), namespace)
    assert 0 <= namespace["run"].result.confidence <= 100
