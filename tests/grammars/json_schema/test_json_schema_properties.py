"""Random schemas against random values, with jsonschema as the judge, both ways."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
)

from ramet.grammars import (
    ConstraintError,
    EmptyConstraintError,
    Grammar,
    GrammarTooComplexError,
    JsonSchema,
    Vocabulary,
    compile_constraint,
)
from ramet.grammars.constraints import SchemaDialect

NAMES = ["a", "b", "ab", "é", "x-1"]
TEXTS = ["", "a", "b", "ab", "é", "a1", "日本", 'q"\\', "x/y"]
NUMBERS = [0, 1, -1, 2, 3, 0.5, 1.5, 10, 100, -0.25]
PATTERNS = ["^a", "b$", "^[a-z]+$", "1", "^.$"]

values: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, False, *NUMBERS, *TEXTS]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    ),
    max_leaves=6,
)
small = st.integers(0, 3)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
            "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), inner, max_size=1),
            "propertyNames": st.sampled_from(
                [{"maxLength": 1}, {"pattern": "^a"}, {"enum": ["a", "b"]}, {"minLength": 1}]
            ),
            "minProperties": small,
            "maxProperties": small,
            "dependentRequired": st.dictionaries(
                st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=1), max_size=1
            ),
            "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=1),
            "unevaluatedProperties": inner,
        },
    )


def arrays(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {},
        optional={
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": small,
            "maxItems": small,
            "uniqueItems": st.booleans(),
            "contains": inner,
            "minContains": small,
            "maxContains": small,
            "unevaluatedItems": inner,
        },
    )


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    several = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        st.fixed_dictionaries({"allOf": several}),
        st.fixed_dictionaries({"anyOf": several}),
        st.fixed_dictionaries({"oneOf": several}),
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"if": inner}, optional={"then": inner, "else": inner}),
    )


scalars = st.one_of(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["string", "number", "integer", "null", "boolean", "array", "object"]
            )
        }
    ),
    st.fixed_dictionaries({"enum": st.lists(values, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"const": values}),
    st.fixed_dictionaries(
        {}, optional={"minLength": small, "maxLength": small, "pattern": st.sampled_from(PATTERNS)}
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "minimum": st.sampled_from([0, 1, -1.5]),
            "exclusiveMaximum": st.sampled_from([2, 10]),
            "multipleOf": st.sampled_from([1, 2, 0.5]),
        },
    ),
    st.booleans(),
)


def _merge(parts: list[Any]) -> Any:
    merged: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, bool):
            return part
        merged.update(part)
    return merged


schemas = st.recursive(
    scalars,
    lambda inner: st.lists(
        st.one_of(objects(inner), arrays(inner), combined(inner), scalars), min_size=1, max_size=2
    ).map(_merge),
    max_leaves=5,
)


def compiled(schema: Any, vocab: Vocabulary) -> Grammar | None:
    """The grammar; None if the schema is said to have no valid value."""
    try:
        return compile_constraint(JsonSchema(schema), vocab)
    except GrammarTooComplexError:
        reject()  # this example only: a skip would end the whole property
    except ConstraintError as error:
        assert error.reason == "no value is valid"  # noqa: PT017
        return None


def tokenised(text: str, vocab: Vocabulary, rng: random.Random) -> list[int]:
    """A random way to spell a text in tokens."""
    data = text.encode()
    by_text: dict[bytes, list[int]] = {}
    for i, token in enumerate(vocab.tokens):
        if token is not None:
            by_text.setdefault(token, []).append(i)
    at, ids = 0, []
    while at < len(data):
        lengths = [n for n in range(1, 6) if data[at : at + n] in by_text and at + n <= len(data)]
        piece = data[at : at + rng.choice(lengths)]
        ids.append(rng.choice(by_text[piece]))
        at += len(piece)
    return ids


def accepts(grammar: Grammar, ids: list[int]) -> bool:
    matcher = grammar.matcher()
    return all(matcher.accept(i) for i in ids) and matcher.is_accepting


SETTINGS = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)


@SETTINGS
@given(schema=schemas, instances=st.lists(values, min_size=1, max_size=8), seed=st.integers(0, 999))
def test_accepts_exactly_the_valid_values(
    vocab: Vocabulary, schema: Any, instances: list[Any], seed: int
) -> None:
    grammar = compiled(schema, vocab)
    validator = Draft202012Validator(schema)
    rng = random.Random(seed)
    for instance in instances:
        valid = validator.is_valid(instance)
        if grammar is None:
            assert not valid, (schema, instance)
            continue
        text = json.dumps(
            instance,
            ensure_ascii=rng.random() < 0.5,
            separators=(", ", ": ") if rng.random() < 0.5 else (",", ":"),
        )
        assert accepts(grammar, tokenised(text, vocab, rng)) == valid, (schema, instance)


def finish(grammar: Grammar, vocab: Vocabulary, rng: random.Random, allowed) -> str | None:  # type: ignore[no-untyped-def]
    """A text that random allowed tokens lead to; None if it grows long."""
    matcher = grammar.matcher()
    closers = [2 + b for b in b'}]"0e"\\:']
    for step in range(120):
        found = allowed(matcher, vocab)
        assert found, f"stuck after {matcher.text!r}"
        if 0 in found and (step > 25 or rng.random() < 0.5):
            assert matcher.is_accepting
            return matcher.text.decode()
        choice = [t for t in closers if t in found] if step > 25 else []
        if not choice or rng.random() < 0.2:
            choice = sorted(found - {0})
        if choice:
            assert matcher.accept(rng.choice(choice))
    return None


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({k for k, _ in pairs}) == len(pairs), f"a name comes twice: {pairs}"
    return dict(pairs)


@SETTINGS
@given(schema=schemas, seed=st.integers(0, 999))
def test_generates_only_valid_values(
    vocab: Vocabulary, allowed_tokens, schema: Any, seed: int
) -> None:  # type: ignore[no-untyped-def]
    grammar = compiled(schema, vocab)
    if grammar is None:
        return
    validator = Draft202012Validator(schema)
    rng = random.Random(seed)
    for _ in range(3):
        text = finish(grammar, vocab, rng, allowed_tokens)
        # The judge computes in binary floats, which many digits are more than.
        if text is not None and not re.search(r"[0-9.]{15}|[eE]", text):
            value = json.loads(text, object_pairs_hook=without_duplicates)
            assert validator.is_valid(value), (schema, text)


@SETTINGS
@given(schema=schemas, seed=st.integers(0, 999))
def test_every_position_can_be_completed(
    vocab: Vocabulary, allowed_tokens, schema: Any, seed: int
) -> None:  # type: ignore[no-untyped-def]
    grammar = compiled(schema, vocab)
    if grammar is None:
        return
    rng = random.Random(seed)
    matcher = grammar.matcher()
    for _ in range(12):
        completion = matcher.shortest_completion()
        assert grammar.match(matcher.text + completion), (schema, matcher.text, completion)
        assert matcher.is_accepting == (completion == b"")
        allowed = sorted(allowed_tokens(matcher, vocab) - {0})
        if not allowed:
            return
        assert matcher.accept(rng.choice(allowed))


DRAFTS: dict[SchemaDialect, Any] = {
    "draft-04": Draft4Validator,
    "draft-06": Draft6Validator,
    "draft-07": Draft7Validator,
    "2019-09": Draft201909Validator,
    "2020-12": Draft202012Validator,
}


@SETTINGS
@given(schema=schemas, value=values, dialect=st.sampled_from(list(DRAFTS)))
def test_drafts_agree_with_their_validators(
    vocab: Vocabulary, schema: Any, value: Any, dialect: SchemaDialect
) -> None:
    text = json.dumps(schema)
    if dialect == "draft-04" and ("exclusiveMaximum" in text or isinstance(schema, bool)):
        return  # A number there is malformed in draft 4; it is read as in later drafts.
    if dialect == "2019-09" and "unevaluatedItems" in text:
        return  # Validators differ on whether contains counts.
    try:
        grammar = compile_constraint(JsonSchema(schema, dialect=dialect), vocab)
    except GrammarTooComplexError:
        reject()
    except EmptyConstraintError:
        assert not DRAFTS[dialect](schema).is_valid(value)
        return
    expected = DRAFTS[dialect](schema).is_valid(value)
    assert bool(grammar.match(json.dumps(value, ensure_ascii=False))) == expected
