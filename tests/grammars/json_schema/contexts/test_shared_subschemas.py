"""Promised: what schemas have in common is worked out once, and no schema is the worse for it."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.grammars import ConstraintError, GrammarCompiler, JsonSchema, Vocabulary

VOCAB = Vocabulary.from_tokens([*(bytes((i,)) for i in range(256)), None], {256})


def number_schema(**more: Any) -> dict[str, Any]:
    return {"properties": {"n": {"type": "integer", "maximum": 9, **more}}}


def test_equal_subschemas_keep_their_own_options() -> None:
    compiler = GrammarCompiler(VOCAB)
    compiler.warm()
    for _ in range(2):
        loose = compiler.compile(JsonSchema(number_schema(title="a")))
        plain = compiler.compile(JsonSchema(number_schema(title="b"), integers="plain"))
        spaced = compiler.compile(JsonSchema(number_schema(title="c"), whitespace="none"))
        assert loose.match('{"n": 7.0}')
        assert plain.match('{"n": 7}')
        assert not plain.match('{"n": 7.0}')
        assert not spaced.match('{"n": 7}')
        for grammar in (loose, plain, spaced):
            assert not grammar.match('{"n":10}')


def test_an_error_names_its_own_place() -> None:
    compiler = GrammarCompiler(VOCAB)
    for place in ("a", "b"):
        bad = {"properties": {place: {"type": "string", "pattern": "("}}}
        for _ in range(2):
            with pytest.raises(ConstraintError) as caught:
                compiler.compile(JsonSchema(bad))
            assert caught.value.path == f"/properties/{place}/pattern"


def test_what_looks_alike_is_distinguished() -> None:
    compiler = GrammarCompiler(VOCAB)
    for value, text in ((1, "1"), (True, "true"), ("1", '"1"'), (None, "null")):
        grammar = compiler.compile(JsonSchema({"properties": {"a": {"const": value}}}))
        for other in ("1", "true", '"1"', "null"):
            assert bool(grammar.match(f'{{"a":{other}}}')) == (other == text)


def test_references_are_their_own_documents() -> None:
    compiler = GrammarCompiler(VOCAB)
    for kind, text in (("integer", "5"), ("string", '"x"')):
        schema = {
            "properties": {"a": {"$ref": "#/$defs/x", "description": "one"}},
            "$defs": {"x": {"type": kind}},
        }
        grammar = compiler.compile(JsonSchema(schema))
        assert grammar.match(f'{{"a":{text}}}')
        assert not grammar.match('{"a":[]}')


def test_the_order_of_names_is_a_schemas_own() -> None:
    compiler = GrammarCompiler(VOCAB)
    for names in (("a", "b"), ("b", "a")):
        inner = {"properties": {n: {"type": "null"} for n in names}, "required": list(names)}
        schema = {"type": "object", "properties": {"x": inner}, "required": ["x"]}
        grammar = compiler.compile(JsonSchema(schema, any_order=False))
        first, second = names
        assert grammar.match(f'{{"x":{{"{first}":null,"{second}":null}}}}')
        assert not grammar.match(f'{{"x":{{"{second}":null,"{first}":null}}}}')
