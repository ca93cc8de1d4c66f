"""What can't be honoured is refused when it is compiled, by place and keyword, and in good time."""

from __future__ import annotations

import gc
import time
import weakref
from typing import Any

import pytest

from ramet.grammars import (
    Choice,
    CompileLimits,
    ConstraintError,
    Ebnf,
    EmptyConstraintError,
    FixedText,
    GrammarCompiler,
    GrammarTooComplexError,
    JsonObject,
    JsonSchema,
    Regex,
    Series,
    StructuralTag,
    Vocabulary,
    compile_constraint,
)


@pytest.mark.parametrize(
    ("schema", "path", "keyword"),
    [
        ({"properties": {"a": {"type": "text"}}}, "/properties/a/type", "type"),
        ({"items": {"pattern": "(["}}, "/items/pattern", "pattern"),
        ({"properties": {"a/b": {"minimum": "1"}}}, "/properties/a~1b/minimum", "minimum"),
        ({"$ref": "#/$defs/none"}, "/$ref", "$ref"),
        ({"anyOf": [{"$ref": "http://elsewhere/x.json"}]}, "/anyOf/0/$ref", "$ref"),
        ({"allOf": []}, "/allOf", "allOf"),
        ({"multipleOf": 0}, "/multipleOf", "multipleOf"),
        ({"required": "a"}, "/required", "required"),
        ({"patternProperties": {"a(?<b": {}}}, "/patternProperties/a(?<b", "patternProperties"),
        ({"maxLength": -1}, "/maxLength", "maxLength"),
        ({"properties": {"a": 3}}, "/properties/a", ""),
        ({"$ref": "#"}, "", "$ref"),
        ({"anyOf": [{"$ref": "#"}]}, "", "$ref"),
        ([], "", ""),
        ({"uniqueItems": "yes"}, "/uniqueItems", "uniqueItems"),
        ({"items": 5}, "/items", "items"),
        ({"prefixItems": {}}, "/prefixItems", "prefixItems"),
        ({"additionalItems": 5}, "/additionalItems", "additionalItems"),
        ({"if": 5}, "/if", "if"),
        ({"format": {}}, "/format", "format"),
        ({"dependentRequired": {"a": [1]}}, "/dependentRequired", "dependentRequired"),
        ({"dependentRequired": {"a": {}}}, "/dependentRequired", "dependentRequired"),
        ({"dependentSchemas": {"a": ["b"]}}, "/dependentSchemas", "dependentSchemas"),
        ({"dependencies": {"a": 5}}, "/dependencies", "dependencies"),
        ({"properties": {1: {}}}, "/properties", "properties"),
        ({"items": {"const": float("nan")}}, "/items/const", "const"),
        ({"enum": ["a", "\ud800"]}, "/enum", "enum"),
        ({"enum": [{1: 2}]}, "/enum", "enum"),
        ({"const": {1, 2}}, "/const", "const"),
        ({"minLength": 2**70}, "/minLength", "minLength"),
        ({"items": {"multipleOf": -1}}, "/items/multipleOf", "multipleOf"),
    ],
)
def test_unsound_schemas(schema: Any, path: str, keyword: str, vocab: Vocabulary) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(JsonSchema(schema), vocab)
    assert (caught.value.path, caught.value.keyword) == (path, keyword)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "array", "minItems": 2, "allOf": [{"maxItems": 1}]},
        {"type": "object", "minProperties": 2, "maxProperties": 1},
        False,
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
        {"allOf": [{"type": "string"}, {"type": "number"}]},
        {"not": {}},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["a", "b"], "maxProperties": 1},
        {"type": "object", "required": ["b"], "propertyNames": {"const": "a"}},
        {"type": "array", "items": {"enum": [1, 2]}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "contains": {"const": 1}, "maxItems": 0},
        {"oneOf": [{"type": "string"}, {"type": "string"}]},
        {"enum": ["a"], "pattern": "b"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    ],
)
def test_impossible_schemas(schema: Any, vocab: Vocabulary) -> None:
    with pytest.raises(EmptyConstraintError):
        compile_constraint(JsonSchema(schema), vocab)


def nested_one_of(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for i in range(depth):
        schema = {"oneOf": [schema, {"type": "object", "required": [f"k{i}"]}, {"type": "integer"}]}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^(a{1,50000}){1,50000}$"},
        {"type": "string", "pattern": "(a|b)*a(a|b){60}"},
        nested_one_of(300),
        {"enum": ["x" * 1000 + str(i) for i in range(5000)]},
    ],
    ids=["repeats", "subsets", "depth", "literals"],
)
def test_too_much_is_an_error_in_good_time(schema: Any, vocab: Vocabulary) -> None:
    begin = time.monotonic()
    with pytest.raises(GrammarTooComplexError):
        compile_constraint(JsonSchema(schema), vocab).match('"aaaa"')
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(
    ("constraint", "path"),
    [
        (Regex(5), "/pattern"),  # type: ignore[arg-type]
        (Regex("a", "java"), "/dialect"),  # type: ignore[arg-type]
        (Ebnf('start: "a"', "yacc"), "/dialect"),  # type: ignore[arg-type]
        (Choice("abc"), "/choices"),  # type: ignore[arg-type]
        (Choice(("a", 5)), "/choices/1"),  # type: ignore[arg-type]
        (JsonSchema({}, whitespace="wide"), "/whitespace"),  # type: ignore[arg-type]
        (JsonSchema({}, documents=[]), "/documents"),  # type: ignore[arg-type]
        (StructuralTag(Series((FixedText("a"), FixedText(5)))), "/root/parts/1/text"),  # type: ignore[arg-type]
    ],
)
def test_fields_of_the_wrong_kind(constraint: Any, path: str, vocab: Vocabulary) -> None:
    with pytest.raises(ConstraintError) as caught:
        compile_constraint(constraint, vocab)
    assert caught.value.path == path


def test_a_bound_past_all_texts_is_none(vocab: Vocabulary) -> None:
    schema = {"type": "string", "minLength": 1, "maxLength": 2**70}
    grammar = compile_constraint(JsonSchema(schema), vocab)
    assert grammar.match('"a"')
    assert not grammar.match('""')


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (nested_one_of(20), '{"k3": 1}', "1"),
        ({"enum": [f"value {i}" for i in range(5000)]}, '"value 4999"', '"value 5000"'),
        ({"type": "string", "pattern": "^a{1,5000}$"}, '"aaa"', '"aab"'),
        ({"type": "string", "maxLength": 10**9, "minLength": 2}, '"abc"', '"a"'),
        (
            {
                "oneOf": [
                    {
                        "type": "object",
                        "properties": {
                            "name": {"const": f"tool{i}"},
                            "arguments": {
                                "type": "object",
                                "properties": {f"p{k}": {"type": "string"} for k in range(50)},
                                "additionalProperties": False,
                            },
                        },
                        "required": ["name", "arguments"],
                        "additionalProperties": False,
                    }
                    for i in range(200)
                ]
            },
            '{"name": "tool7", "arguments": {"p3": "x", "p49": "y"}}',
            '{"name": "tool7", "arguments": {"p50": "x"}}',
        ),
    ],
    ids=["nested oneOf", "enum", "repeat", "length", "tools"],
)
def test_large_but_fair(schema: Any, good: str, bad: str, vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema(schema), vocab)
    assert grammar.match(good)
    assert not grammar.match(bad)


def test_limits_are_the_callers(vocab: Vocabulary) -> None:
    limits = CompileLimits(max_schema_nodes=5)
    with pytest.raises(GrammarTooComplexError, match="more than 5 subschemas"):
        compile_constraint(
            JsonSchema({"properties": {c: {} for c in "abcdefgh"}}), vocab, limits=limits
        )


def test_compiler_remembers_by_content_up_to_its_capacity(vocab: Vocabulary) -> None:
    compiler = GrammarCompiler(vocab, capacity=2)
    first = compiler.compile(JsonSchema({"type": "string"}))
    assert compiler.compile(JsonSchema({"type": "string"})) is first
    assert compiler.compile(JsonSchema({"type": "string"}, whitespace="none")) is not first
    compiler.compile(JsonObject())
    assert compiler.compile(JsonSchema({"type": "string"})) is not first


def test_a_forgotten_grammar_leaves_nothing_behind(vocab: Vocabulary) -> None:
    compiler = GrammarCompiler(vocab, capacity=1)
    grammar = compiler.compile(JsonSchema({"type": "object", "properties": {"a": {}}}))
    assert grammar.match('{"a": [1], "b": 2}')
    machine = weakref.ref(grammar._pushdown)
    gc.disable()
    try:
        del grammar
        compiler.compile(JsonObject())
        assert machine() is None
    finally:
        gc.enable()


def test_white_space_is_what_was_asked_for(vocab: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}}
    compact = compile_constraint(JsonSchema(schema), vocab)
    none = compile_constraint(JsonSchema(schema, whitespace="none"), vocab)
    pretty = compile_constraint(JsonSchema(schema, whitespace="pretty"), vocab)
    assert compact.match('{"a": [1, 2]}')
    assert compact.match('{"a":[1,2]}')
    assert compact.match(' { "a" : [ 1 , 2 ] }')
    assert not compact.match('{"a":  1}')
    assert not compact.match('{"a":\n[]}')
    assert not compact.match("{} ")
    assert none.match('{"a":[1,2]}')
    assert not none.match('{"a": [1]}')
    assert pretty.match('{\n  "a": [\n    1,\n    2\n  ]\n}')
    assert pretty.match("{}")
    assert pretty.match('{\n  "a": []\n}')
    assert not pretty.match('{"a": []}')


def test_order_of_properties(vocab: Vocabulary) -> None:
    schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]}
    fixed = compile_constraint(JsonSchema(schema, any_order=False), vocab)
    free = compile_constraint(JsonSchema(schema), vocab)
    assert free.match('{"c": 1, "b": 2, "a": 3}')
    assert fixed.match('{"a": 1, "b": 2, "x": 3}')
    assert fixed.match('{"b": 2, "c": 3}')
    assert fixed.match('{"b": 2, "a": 3}')  # It may have any other name as well.
    assert not fixed.match('{"x": 3, "b": 2}')
    closed = JsonSchema({**schema, "additionalProperties": False}, any_order=False)
    assert not compile_constraint(closed, vocab).match('{"b": 2, "a": 3}')
    assert fixed.match('{"c": 2, "b": 3}').offset == 2


def test_documents_are_the_callers(vocab: Vocabulary) -> None:
    documents = {"http://x/point.json": {"$defs": {"n": {"type": "integer"}}, "$ref": "#/$defs/n"}}
    grammar = compile_constraint(
        JsonSchema(
            {"items": {"$ref": "http://x/point.json"}, "type": "array"}, documents=documents
        ),
        vocab,
    )
    assert grammar.match("[1, 2]")
    assert not grammar.match('["a"]')


def test_escapes_and_surrogates(vocab: Vocabulary) -> None:
    one = compile_constraint(JsonSchema({"type": "string", "maxLength": 1}), vocab)
    for text in (r'"\ud83d\ude00"', '"😀"', r'"\n"', r'"\u0000"', r'"\u00E9"', '"é"', r'"\""'):
        assert one.match(text), text
    for text in (r'"\ud83d"', r'"\ude00"', r'"\ud83d\ude00a"', r'"\u00e9x"', '"\n"', r'"\x"'):
        assert not one.match(text), text
    names = compile_constraint(
        JsonSchema(
            {
                "properties": {"é/": {"type": "integer"}},
                "additionalProperties": False,
                "type": "object",
            }
        ),
        vocab,
    )
    for text in ('{"é/": 1}', r'{"\u00e9/": 1}', r'{"\u00E9\/": 1}'):
        assert names.match(text), text
    assert not names.match(r'{"é/": 1, "\u00e9/": 2}')
    free = compile_constraint(JsonObject(), vocab)
    assert free.match(r'{"a\/é": 1, "b": 2}')
    for text in (
        r'{"é": 1, "\u00e9": 2}',
        r'{"a/": 1, "a\/": 2}',
        '{"": 1, "": 2}',
        r'{"\n": 1, "\u000A": 2}',
    ):
        assert not free.match(text), text
