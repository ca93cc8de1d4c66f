"""Promised: JSON-Schema-Test-Suite, drafts 3 to 2020-12, group by group; none wrong.

``official/suite.json.xz`` is the suite (MIT, see its licence), packed by ``official/pack.py``.
"""

from __future__ import annotations

import json
import lzma
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

DIALECTS = {
    "draft3": "draft-03",
    "draft4": "draft-04",
    "draft6": "draft-06",
    "draft7": "draft-07",
    "draft2019-09": "2019-09",
    "draft2020-12": "2020-12",
}

CHOICES = {
    "optional/zeroTerminatedFloats.json",  # 1.0 is an integer, as every draft from 6 on says
    "optional/content.json",  # what a string encodes is an annotation, as from 2019-09 on
}
"""Optional files of which a reader may choose the opposite."""

UNDECODED = {"optional/format/ecmascript-regex.json"}
"""A format of which the language is a subset."""


@cache
def suite() -> dict[str, Any]:
    path = Path(__file__).parent / "official" / "suite.json.xz"
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found


@cache
def documents() -> dict[str, Any]:
    remotes = {f"http://localhost:1234/{k}": v for k, v in suite()["remotes"].items()}
    return {**remotes, **{uri: REGISTRY.contents(uri) for uri in REGISTRY}}


def outcome(group: dict[str, Any], constraint: JsonSchema, compiler: GrammarCompiler) -> str:
    """``handled``, ``refused`` with a keyword, or what is wrong."""
    try:
        grammar = compiler.compile(constraint)
    except EmptyConstraintError:
        return "handled" if not any(t["valid"] for t in group["tests"]) else "refuses valid"
    except ConstraintError as error:
        return f"refused {error.keyword}"
    for test in group["tests"]:
        text = json.dumps(test["data"], ensure_ascii=False)
        if grammar.match(text).accepted != test["valid"]:
            wrong = "refuses valid" if test["valid"] else "accepts invalid"
            return f"{wrong}: {test['description']}"
    return "handled"


@pytest.mark.parametrize("draft", list(DIALECTS))
def test_suite(vocab: Vocabulary, draft: str) -> None:
    compiler = GrammarCompiler(vocab)
    found: Counter[str] = Counter()
    others = []
    for path, groups in suite()["tests"][draft].items():
        if path in CHOICES or path in UNDECODED:
            continue
        # By default a format is an annotation; the optional tests are about those that bind.
        is_bound = path.startswith("optional/format/")
        for group in groups:
            schema = group["schema"]
            needs_more = any(word in json.dumps(schema) for word in ('ef"', "$schema", "$id"))
            constraint = JsonSchema(
                schema,
                documents=documents() if needs_more else {},
                formats="enforced" if is_bound else "annotation",
                dialect=DIALECTS[draft],  # type: ignore[arg-type]
            )
            result = outcome(group, constraint, compiler)
            found[result.split(" ")[0]] += 1
            if result != "handled":
                others.append(f"{path}: {group['description']}: {result}")
    assert found["handled"] + found["refused"] == found.total(), others
    assert found["handled"] >= 0.98 * found.total(), others


@pytest.mark.parametrize("draft", ["draft7", "draft2020-12"])
def test_the_draft_is_named_by_the_schema(vocab: Vocabulary, draft: str) -> None:
    name = {"draft7": "http://json-schema.org/draft-07/schema#"}.get(
        draft, "https://json-schema.org/draft/2020-12/schema"
    )
    schema = {"$schema": name, "$ref": "#/$defs/a", "maxLength": 1, "$defs": {"a": {}}}
    assert bool(compile_constraint(JsonSchema(schema), vocab).match('"aa"')) == (draft == "draft7")


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
