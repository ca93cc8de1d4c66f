"""Promised: an engine's regular constraints may be masked by outlines-core, with equal results."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import pytest

from ramet.grammars import Choice, Constraint, JsonObject, Regex
from ramet.grammars.outlines_backend import OutlinesGrammar
from ramet.runtime.api.errors import InvalidConstraintError, InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import EngineConfig
from ramet.runtime.testing.scripted_engine import scripted_engine


def output(config: EngineConfig, constraint: Constraint, max_tokens: int = 40) -> str:
    params = SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=7)
    request = Request(prompt_token_ids=(65,), params=params, constraint=constraint)
    with scripted_engine(config=config) as engine:
        return engine.submit(request).result(60).text


@pytest.mark.parametrize(
    "constraint", [Regex("[a-c]{3}-[0-9]{4}"), Regex("(ab|cd)+e"), Choice(("yes", "no", "nobody"))]
)
def test_both_backends_sample_the_same_text(constraint: Constraint) -> None:
    native = output(EngineConfig(seed=0), constraint)
    assert native == output(EngineConfig(seed=0, regular_backend="outlines-core"), constraint)
    assert native


def test_only_regular_constraints_use_it() -> None:
    with scripted_engine(config=EngineConfig(regular_backend="outlines-core")) as engine:
        assert isinstance(engine._compiler.compile(Regex("a|bc")), OutlinesGrammar)
        assert not isinstance(engine._compiler.compile(JsonObject()), OutlinesGrammar)


def test_a_pattern_that_it_reads_differently_is_refused() -> None:
    with pytest.raises(InvalidConstraintError, match="outlines-core"):
        output(EngineConfig(regular_backend="outlines-core"), Regex("(?!a)[ab]"))


def test_a_missing_package_is_named_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec

    def missing(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "outlines_core" else find(name, package)

    monkeypatch.setattr("ramet.runtime.engine.config.find_spec", missing)
    EngineConfig()
    with pytest.raises(InvalidParameterError, match=r"ramet\[outlines\]"):
        EngineConfig(regular_backend="outlines-core")
