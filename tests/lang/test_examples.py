"""The example programs and the demo, on scripts and on the bundled model."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from ramet.cli.demo import plan_a_day, run_demo
from ramet.lang import ScriptedBackend

EXAMPLES = Path(__file__).parents[2] / "examples"

SCRIPTS: dict[str, dict[str, Any]] = {
    "few_shot_classification": {
        "label": lambda call: next(
            label
            for word, label in (("dull", "negative"), ("won", "positive"), ("two", "neutral"))
            if word in call.prompt.text.rpartition("Review:")[2]
        )
    },
    "react_agent": {
        "answer.turn1": {"tool_calls": [{"name": "height", "arguments": {"mountain": "Teide"}}]},
        "answer.turn2": lambda call: {"answer": call.prompt.messages[-1].content[-4:]},
    },
    "tree_of_thought": {
        "step0": ["add", "guess", "give up"],
        "judged0": [{"yes": -0.1, "no": -3.0}, {"yes": -2.0, "no": -0.2}, {"yes": -9, "no": -1}],
        "step1": ["stop", "say 22", "dance"],
        "judged1": [{"yes": -2.0, "no": -0.2}, {"yes": -0.1, "no": -3.0}, {"yes": -9, "no": -1}],
        "answer": lambda call: call.prompt.messages[-2].content,
    },
    "skeleton_of_thought": {
        "points": [["Cold room", "No phone", "Same hour"]],
        "sentence": lambda call: call.prompt.messages[-1].content.rpartition(": ")[2] + "!",
    },
    "branch_solve_merge": {
        "judgement": "fine",
        "verdict": {"grade": 7, "reason": "clear"},
    },
    "json_extraction": {"person": {"name": "Ada", "born": 1815, "field": "mathematics"}},
    "multi_turn_chat": {"answer0": "A poem.", "answer1": "Drip.", "answer2": "White."},
    "rag_rerank": {
        "helps": lambda call: {
            "yes": -0.1 if "1837" in call.prompt.messages[-1].content else -5.0,
            "no": -1.0,
        },
        "answer": lambda call: call.prompt.messages[-1].content.splitlines()[1],
    },
    "generative_agents": {
        **{f"{time}_place": "lake" for time in ("morning", "afternoon", "evening")},
        **{f"{time}_doing": "sings" for time in ("morning", "afternoon", "evening")},
        "thought": "good",
    },
    "self_consistency": {"thought": "hm", "number": ["18", "18", "12", "18", "3"]},
}

RESULTS: dict[str, Any] = {
    "few_shot_classification": ["negative", "positive", "neutral"],
    "react_agent": "3715",
    "tree_of_thought": "Step 2: say 22",
    "skeleton_of_thought": "1. Cold room!\n2. No phone!\n3. Same hour!",
    "rag_rerank": "The first pastéis were sold in 1837 by the monks' heirs.",
    "self_consistency": 18,
}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where pydantic looks for a model's types
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested() -> None:
    assert sorted(SCRIPTS) == sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_examples_on_scripts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    backend = ScriptedBackend(SCRIPTS[name])
    result = load(name).main(backend)
    assert result
    assert capsys.readouterr().out
    if name in RESULTS:
        assert result == RESULTS[name]


@pytest.mark.model
def test_an_example_and_the_demo_on_the_bundled_model() -> None:
    from ramet.runtime.engine import Engine

    console = Console(record=True, width=100, force_terminal=False)
    with Engine.from_model("smollm2") as engine:
        assert load("json_extraction").main(engine).born >= 0
        run = run_demo(engine, console=console)
        engine.check()
    printed = console.export_text()
    usage = run.trace.usage
    assert usage.cached_tokens > usage.prompt_tokens / 2
    assert usage.forced_tokens > 0
    assert run.result.bring in ("an umbrella", "sunglasses")
    for wanted in ("fork 3", "select focus", "tool forecast", "gen plan: Plan", "prefix cache"):
        assert wanted in printed


def test_the_demo_has_all_kinds_of_calls() -> None:
    graph = plan_a_day.graph()
    printed = graph.tree()
    assert "fork 3" in printed
    assert printed.count("gen tip") == 3
    assert "select focus of 3" in printed
    assert "gen weather.turn1" in printed
