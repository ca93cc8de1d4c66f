"""JSON-Schema-Test-Suite, draft 2020-12 and draft 7, group by group."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema_specifications import REGISTRY

from ramet.grammars import (
    ConstraintError,
    EmptyConstraintError,
    GrammarCompiler,
    JsonSchema,
    Vocabulary,
    compile_constraint,
)

# Groups that say a known format, or a keyword of an unknown vocabulary, is a mere annotation.
# Ramet enforces what it knows.
ANNOTATIONS = {"format", "vocabulary"}
# Groups that Ramet refuses when it compiles them, by name of the error's keyword.
REFUSED = {"idn-hostname", "multipleOf"}


@cache
def meta_schemas() -> dict[str, Any]:
    return {uri: REGISTRY.contents(uri) for uri in REGISTRY}


@cache
def remotes(folder: Path) -> dict[str, Any]:
    return {
        f"http://localhost:1234/{path.relative_to(folder).as_posix()}": json.loads(path.read_text())
        for path in folder.rglob("*.json")
        if not path.parts[len(folder.parts)].startswith("draft")
        or path.parts[len(folder.parts)] in ("draft2020-12", "draft7")
    }


def outcome(group: dict[str, Any], documents: dict[str, Any], vocab: Vocabulary) -> str:
    """``handled``, ``refused`` with a keyword, or what is wrong."""
    try:
        grammar = compile_constraint(JsonSchema(group["schema"], documents=documents), vocab)
    except EmptyConstraintError:
        return "handled" if not any(t["valid"] for t in group["tests"]) else "refuses valid"
    except ConstraintError as error:
        return f"refused {error.keyword}"
    for test in group["tests"]:
        text = json.dumps(test["data"], ensure_ascii=False)
        if grammar.match(text).accepted != test["valid"]:
            return "refuses valid" if test["valid"] else "accepts invalid"
    return "handled"


@pytest.mark.shared
@pytest.mark.parametrize(("draft", "least"), [("draft2020-12", 0.97), ("draft7", 0.97)])
def test_suite(shared_bench: Path, vocab: Vocabulary, draft: str, least: float) -> None:
    suite = shared_bench / "JSON-Schema-Test-Suite"
    found: Counter[str] = Counter()
    wrong = []
    for path in sorted((suite / "tests" / draft).glob("*.json")):
        if path.stem in ANNOTATIONS:
            continue
        for group in json.loads(path.read_text()):
            if draft == "draft7" and isinstance(group["schema"], dict):
                group["schema"].setdefault("$schema", "http://json-schema.org/draft-07/schema#")
            text = json.dumps(group["schema"])
            documents: dict[str, Any] = {}
            if "ref" in text:
                documents.update(remotes(suite / "remotes"))
            if "json-schema.org" in text:
                documents.update(meta_schemas())
            result = outcome(group, documents, vocab)
            found[result] += 1
            if result != "handled":
                wrong.append(f"{path.stem}: {group['description']}: {result}")
    assert not found["accepts invalid"], wrong
    assert not found["refuses valid"], wrong
    assert found["handled"] >= least * found.total(), wrong


@pytest.mark.shared
@pytest.mark.parametrize("draft", ["draft2020-12", "draft7"])
def test_formats_as_annotations(shared_bench: Path, vocab: Vocabulary, draft: str) -> None:
    path = shared_bench / "JSON-Schema-Test-Suite" / "tests" / draft / "format.json"
    compiler = GrammarCompiler(vocab)
    for group in json.loads(path.read_text()):
        grammar = compiler.compile(JsonSchema(group["schema"], formats="annotation"))
        for test in group["tests"]:
            text = json.dumps(test["data"], ensure_ascii=False)
            assert grammar.match(text).accepted == test["valid"], (group["description"], text)


def test_formats_bind_only_where_they_are_enforced(vocab: Vocabulary) -> None:
    schema = {"properties": {"a": {"type": "string", "format": "date"}}, "format": "date"}
    compiler = GrammarCompiler(vocab)
    for _ in range(2):
        loose = compiler.compile(JsonSchema(schema, formats="annotation"))
        assert loose.match('{"a": "x"}')
        assert loose.match('"x"')
        strict = compiler.compile(JsonSchema(schema))
        assert not strict.match('{"a": "x"}')
        assert not strict.match('"x"')
        assert strict.match('{"a": "2024-02-29"}')


@pytest.mark.shared
def test_small_cases_behind_public_bug_reports(shared_bench: Path, vocab: Vocabulary) -> None:
    wrong = []
    for case in json.loads((shared_bench / "bugcases.json").read_text()):
        if case["kind"] != "json_schema" or case.get("policy"):
            continue
        try:
            grammar = compile_constraint(JsonSchema(case["grammar"]), vocab)
        except ConstraintError as error:
            if not case.get("error_ok"):
                wrong.append(f"{case['source']}: {error}")
            continue
        wrong += [f"{case['source']}: refuses {t}" for t in case["accept"] if not grammar.match(t)]
        wrong += [f"{case['source']}: accepts {t}" for t in case["reject"] if grammar.match(t)]
    assert not wrong
