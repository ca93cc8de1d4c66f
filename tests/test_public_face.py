"""``import ramet`` is quick, complete, and what the README shows works."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import ramet
import ramet.lang
from ramet import ScriptedBackend
from ramet.lang import Program

README = Path(__file__).parents[1] / "README.md"


def test_every_public_name_is_there() -> None:
    assert all(getattr(ramet, name) is not None for name in ramet.__all__)
    assert dir(ramet) == sorted(ramet.__all__)
    assert set(ramet.lang.__all__) < set(ramet.__all__)  # one place for all of them
    assert ramet.__version__ == metadata.version("ramet")
    with pytest.raises(AttributeError, match="nonsense"):
        _ = ramet.nonsense


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("ramet", ("torch", "numba", "fastapi")),
        ("ramet.cli.root, ramet.runtime.engine.process", ("torch", "numba", "fastapi")),
        ("ramet.lang.serving, ramet.runtime.server.main", ("torch", "numba")),
    ],
)
def test_importing_loads_nothing_heavy(modules: str, heavy: tuple[str, ...]) -> None:
    code = f"import sys, {modules}; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_readme_program_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    source = next(block for block in blocks if "@program" in block).split("engine = ")[0]
    names: dict[str, object] = {}
    exec(compile(source, "README.md", "exec"), names)
    judge = names["judge"]
    assert isinstance(judge, Program)
    backend = ScriptedBackend(
        {"view": ["Yes.", "No.", "Perhaps."], "verdict": '{"winner": "for", "confidence": 70}'}
    )
    run = judge.run(question="Should tests come before code?", backend=backend)
    assert run.result.confidence == 70
    assert "- Perhaps." in run.text()
