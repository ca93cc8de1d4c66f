"""References, formats, bounds and older drafts' keywords, with jsonschema-rs as the judge."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema_rs
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from ramet.grammars import (
    ConstraintError,
    EmptyConstraintError,
    Grammar,
    GrammarTooComplexError,
    JsonSchema,
    Vocabulary,
    compile_constraint,
)

NAMES = ["a", "b", "x-1"]
TEXTS = [
    "", "a", "127.0.0.1", "256.1.1.1", "::1", "2024-02-29", "2023-02-29", "12:00:00Z", "P1D",
    "/a~0", "a@b.org", "http://a.b/c?d#e", "#x", "00000000-0000-4000-8000-000000000000", "a b", "(",
]  # fmt: skip
FORMATS = [
    "ipv4", "ipv6", "date", "time", "duration", "json-pointer", "email", "uri", "uri-reference",
    "uuid", "unheard-of",
]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 0.5, 7, 10, 100, -0.25, 4]
BOUNDS = st.sampled_from([-1, 0, 0.5, 2, 10])

values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, *NUMBERS, *TEXTS]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
leaves = st.one_of(
    st.fixed_dictionaries({"type": st.just("string"), "format": st.sampled_from(FORMATS)}),
    st.fixed_dictionaries({"format": st.sampled_from(FORMATS)}),
    st.fixed_dictionaries(
        {},
        optional={
            "minimum": BOUNDS, "maximum": BOUNDS, "exclusiveMinimum": BOUNDS,
            "exclusiveMaximum": BOUNDS, "type": st.sampled_from(["integer", "number"]),
        },
    ),
    st.just({"$ref": "#/$defs/d"}),
    st.just({"$ref": "#named"}),
    st.sampled_from([{"type": ["string", "null"]}, {"type": ["array", "object"]}, True, False]),
)  # fmt: skip


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    nested = st.one_of(inner, st.just({"$ref": "#"}))
    return st.one_of(
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(NAMES), nested)}),
        st.fixed_dictionaries(
            {"type": st.just("object"), "additionalProperties": nested},
            optional={"required": st.lists(st.sampled_from(NAMES), max_size=1)},
        ),
        st.fixed_dictionaries({"items": nested}, optional={"prefixItems": st.lists(nested)}).filter(
            lambda s: s.get("prefixItems") != []
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=2)}),
        st.fixed_dictionaries({"not": inner}),
    )


schemas = st.builds(
    lambda schema, d, named: (
        {**schema, "$defs": {"d": d, "n": {"$anchor": "named", **named}}}
        if isinstance(schema, dict)
        else schema
    ),
    st.recursive(leaves, larger, max_leaves=4),
    st.sampled_from([{"type": "integer"}, {"type": "array", "items": {"$ref": "#/$defs/d"}}]),
    st.sampled_from([{"enum": [0, "a", None]}, {"minLength": 2}]),
)
old_schemas = st.recursive(
    st.one_of(
        st.sampled_from([{"type": "integer"}, {"const": "a"}, True, False, {"minimum": 1}]),
        st.just({"$ref": "#/definitions/d", "minimum": 10**6}),  # Beside $ref nothing counts.
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"items": st.lists(inner, min_size=1, max_size=2)}, optional={"additionalItems": inner}
        ),
        st.fixed_dictionaries(
            {
                "dependencies": st.dictionaries(
                    st.sampled_from(NAMES),
                    st.one_of(inner, st.lists(st.sampled_from(NAMES), max_size=2, unique=True)),
                    max_size=2,
                )
            }
        ),
        st.fixed_dictionaries({"contains": inner}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
        st.fixed_dictionaries({"properties": st.dictionaries(st.sampled_from(NAMES), inner)}),
    ),
    max_leaves=4,
).map(
    lambda s: {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [s],
        "definitions": {"d": {"type": ["integer", "string"]}},
    }
)


def compiled(schema: Any, vocab: Vocabulary) -> Grammar | None:
    """The grammar; None if no value is valid."""
    try:
        return compile_constraint(JsonSchema(schema), vocab)
    except EmptyConstraintError:
        return None
    except (GrammarTooComplexError, ConstraintError):
        reject()


SETTINGS = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})


def check(schema: Any, judge: Any, instances: list[Any], seed: int) -> None:
    grammar = compiled(schema, BYTES)
    rng = random.Random(seed)
    for instance in instances:
        expected = judge.is_valid(instance)
        accepted = grammar is not None and bool(grammar.match(json.dumps(instance)))
        assert accepted == expected, (schema, instance)
    if grammar is None:
        return
    for _ in range(2):
        text = some_text(grammar, rng)
        if text is not None:
            assert judge.is_valid(json.loads(text)), (schema, text)


def some_text(grammar: Grammar, rng: random.Random) -> str | None:
    """What random bytes that are allowed lead to; None if it gets long, or has many digits."""
    matcher = grammar.matcher()
    for step in range(90):
        ways = [b for b in range(0x20, 0x7F) if matcher.fork().accept_bytes(bytes((b,)))]
        if matcher.is_accepting and (not ways or step > 20 or rng.random() < 0.3):
            text = matcher.text.decode()
            return text if sum(c in "0123456789eE" for c in text) < 12 else None
        assert ways, matcher.text
        closing = [b for b in ways if chr(b) in '}]"'] if step > 20 else []
        matcher.accept_bytes(bytes((rng.choice(closing or ways),)))
    return None


@SETTINGS
@given(schema=schemas, instances=st.lists(values, max_size=6), seed=st.integers(0, 99))
def test_references_formats_and_bounds(schema: Any, instances: list[Any], seed: int) -> None:
    judge = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    check(schema, judge, instances, seed)


@SETTINGS
@given(schema=old_schemas, instances=st.lists(values, max_size=6), seed=st.integers(0, 99))
def test_keywords_of_draft_07(schema: Any, instances: list[Any], seed: int) -> None:
    check(schema, jsonschema_rs.Draft7Validator(schema), instances, seed)
