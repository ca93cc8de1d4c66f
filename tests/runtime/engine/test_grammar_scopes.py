"""Where there are tenants, no compilation depends on what another tenant or salt has sent."""

from __future__ import annotations

import threading

import pytest

from ramet.grammars import JsonSchema, Regex
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import GrammarScope, Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_engine import scripted_engine

SCHEMA = JsonSchema({"type": "object", "properties": {"a": {"type": "string", "pattern": "^x+y$"}}})
A, B = GrammarScope("a", "a/"), GrammarScope("b", "b/")
SALTED = GrammarScope("a", "a/salt")


def submit(engine: Engine, scope: GrammarScope) -> None:
    request = Request(
        prompt_token_ids=(1, 2),
        params=SamplingParams(max_tokens=1),
        constraint=Regex("a+b"),
        tenant=scope.tenant,
        cache_salt=scope.cache_salt,
    )
    engine.submit(request).result(timeout=60)


def test_tenants_and_salts_share_no_grammar() -> None:
    config = EngineConfig(tenant_weights={"a": 1.0, "b": 1.0})
    with scripted_engine((), config) as engine:
        compiler = engine._compiler
        first = compiler.compile(SCHEMA, None, A)
        assert compiler.find(SCHEMA, None, A) is first
        assert compiler.find(SCHEMA, None, B) is None
        assert compiler.find(SCHEMA, None, SALTED) is None
        # Nor do tenants share what grammars are made of.
        languages = [compiler._compiler(tenant)._languages for tenant in "ab"]
        assert languages[0] is not languages[1]
        for scope in (A, B, SALTED):
            submit(engine, scope)
            assert compiler.find(Regex("a+b"), None, scope) is not None
        assert engine.stats().num_grammars == 4


def test_without_tenants_all_share_grammars() -> None:
    with scripted_engine() as engine:
        submit(engine, A)
        assert engine._compiler.find(Regex("a+b"), None, B) is not None
        assert engine.stats().num_grammars == 1


def test_a_tenant_does_not_wait_for_the_same_compilation_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = EngineConfig(tenant_weights={"a": 1.0, "b": 1.0}, grammar_threads=3)
    with scripted_engine((), config) as engine:
        go, compile_now = threading.Event(), engine._grammars._compile

        def compile_slowly(constraint, key, scope):  # type: ignore[no-untyped-def]
            assert scope == B or go.wait(60)
            return compile_now(constraint, key, scope)

        monkeypatch.setattr(engine._grammars, "_compile", compile_slowly)
        slow = engine.compile(SCHEMA, A)
        assert engine.compile(SCHEMA, B).result(timeout=60) is None
        assert not slow.done()
        go.set()
        assert slow.result(timeout=60) is None


def test_tenants_share_the_memory_of_grammars() -> None:
    config = EngineConfig(tenant_weights={f"t{i}": 1.0 for i in range(40)}, grammar_bytes=64 << 20)
    with scripted_engine((), config) as engine:
        for i in range(5):
            engine.compile(Regex("a+"), GrammarScope(f"t{i}", f"t{i}/")).result(timeout=60)
        compilers = engine._compiler._by_tenant.values()
        assert [each._max_bytes for each in compilers] == [32 << 20] * 2
