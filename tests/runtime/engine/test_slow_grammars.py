"""A constraint that takes long to compile holds up neither streams nor other constraints."""

from __future__ import annotations

import json
import threading

import pytest

from ramet.grammars import JsonSchema, Regex
from ramet.runtime.api.errors import InvalidConstraintError, RequestAbortedError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

SLOW = JsonSchema({"title": "slow", "description": "large " * 10_000})


@pytest.fixture
def engine(monkeypatch):
    """An engine whose compilation of ``SLOW`` lasts until its ``released`` is set."""
    from ramet.grammars import compile as module

    started, released = threading.Event(), threading.Event()
    compile_schema = module.compile_schema

    def slow(constraint, languages, limits):
        if isinstance(constraint.schema, dict) and constraint.schema.get("title") == "slow":
            started.set()
            assert released.wait(60)
        return compile_schema(constraint, languages, limits)

    monkeypatch.setattr(module, "compile_schema", slow)
    tokenizer = scripted_tokenizer()
    model = ScriptedModel(tokenizer, [Script(["a"], repeat=True)])
    with Engine(model, tokenizer, EngineConfig(seed=0)) as engine:
        engine.started, engine.released = started, released
        yield engine
        released.set()


def request(constraint=None, max_tokens=4):
    params = SamplingParams(max_tokens=max_tokens, temperature=0)
    return Request(prompt_token_ids=(65,), params=params, constraint=constraint)


def test_others_are_served_while_one_is_compiled(engine):
    waiting = engine.submit(request(SLOW))
    more = [
        engine.submit(request(JsonSchema({**SLOW.schema, "$comment": str(i)}))) for i in range(3)
    ]
    assert engine.started.wait(30)
    assert engine.submit(request()).result(timeout=30).text == "aaaa"
    assert engine.submit(request(Regex("b{2}"))).result(timeout=30).text == "bb"
    other = engine.submit(request(JsonSchema({"enum": ["x"]}), max_tokens=9)).result(timeout=30)
    assert json.loads(other.text) == "x"
    assert not waiting.ended
    engine.released.set()
    assert waiting.result(timeout=30).text
    assert all(each.result(timeout=30).text for each in more)


def test_a_grammar_can_be_asked_for_ahead(engine):
    future = engine.compile(SLOW)
    assert engine.started.wait(30)
    assert future.cancel()  # and the compilation goes on for those who want it
    waiting = engine.submit(request(SLOW))
    engine.released.set()
    assert waiting.result(timeout=30).text
    assert engine.compile(Regex("a+")).result(timeout=30) is None
    with pytest.raises(InvalidConstraintError) as caught:
        engine.compile(JsonSchema({"properties": {"a": {"type": "x"}}})).result(timeout=30)
    assert caught.value.pointer == "/properties/a/type"


def test_a_constraint_that_is_no_longer_needed_is_not_compiled(engine, monkeypatch):
    compiled = []
    compile_one = engine._compiler.compile
    monkeypatch.setattr(
        engine._grammars,
        "_compile",
        lambda each, *where: compiled.append(each) or compile_one(each, *where),
    )
    slow = [engine.submit(request(SLOW)), engine.compile(SLOW)]
    assert engine.started.wait(30)
    # The thread for small ones is held up, so that what comes next has to wait.
    held, go_on = threading.Event(), threading.Event()
    blocked = engine._grammars._threads.submit(lambda: held.set() or go_on.wait(30))
    assert held.wait(30)
    abandoned = engine.submit(request(Regex("abandoned")))
    asked = engine.compile(Regex("asked for"))
    wanted = engine.submit(request(Regex("c{2}")))
    abandoned.abort()
    assert asked.cancel()
    with pytest.raises(RequestAbortedError):
        abandoned.result(timeout=30)
    go_on.set()
    assert blocked.result(30)
    assert wanted.result(timeout=30).text == "cc"
    assert Regex("c{2}") in compiled
    assert Regex("abandoned") not in compiled
    assert Regex("asked for") not in compiled
    engine.released.set()
    assert slow[0].result(timeout=30).text
    assert slow[1].result(timeout=30) is None


def test_a_compilation_has_a_limit(monkeypatch):
    from ramet.grammars import CompileLimits, GrammarCompiler
    from ramet.grammars.errors import GrammarTooComplexError
    from ramet.runtime.engine.grammars.grammar_vocabulary import grammar_vocabulary

    tokenizer = scripted_tokenizer()
    vocabulary = grammar_vocabulary(tokenizer, tokenizer.vocab_size)
    compiler = GrammarCompiler(vocabulary, CompileLimits(max_seconds=0.05))
    branches = [{"properties": {f"k{i}": {"pattern": f"a.{{{i}}}b"}}} for i in range(60)]
    with pytest.raises(GrammarTooComplexError):
        compiler.compile(JsonSchema({"type": "object", "allOf": [{"oneOf": branches}] * 3}))
