"""What is found when compiling changes no mask, and states in which nothing stops a text."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ramet.grammars.grammar as grammar_module
from ramet.grammars import (
    GrammarCompiler,
    GrammarTooComplexError,
    JsonSchema,
    compile_constraint,
)
from ramet.grammars.json_schema.text.open_states import open_states
from ramet.grammars.limits import RegularLimits
from ramet.grammars.preparation import Preparation
from ramet.grammars.pushdown.json_text import KEY_SLICE, key_body, slice_tables
from ramet.grammars.pushdown.pushdown_table import PushdownTable
from ramet.grammars.regular import regex_dfa

SCHEMAS = [
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 40}, "id": {"type": "integer"}},
        "patternProperties": {"^t": {"type": "boolean"}},
    },
    {
        "type": "object",
        "properties": {"ab": {"minimum": -5, "maximum": 99999}},
        "patternProperties": {"^a": False, "^f": {"pattern": "^fo*$"}},
        "additionalProperties": {"type": "string", "pattern": "a", "minLength": 2, "maxLength": 90},
        "maxProperties": 3,
    },
    {
        "oneOf": [
            {
                "properties": {"tag": {"const": "foo"}, "id": {"type": "number"}},
                "required": ["tag"],
            },
            {
                "properties": {"tag": {"const": "bar"}, "id": {"type": "string"}},
                "required": ["tag"],
            },
            {"type": "array", "contains": {"const": 1}},
        ],
        "type": ["object", "array"],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_preparing_changes_no_mask(schema, vocab, allowed_tokens, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    prepared = compile_constraint(JsonSchema(schema), vocab)
    assert not prepared.preparation.run()
    monkeypatch.setattr(grammar_module, "_NUM_CHECKED", 0)
    monkeypatch.setattr(Preparation, "run", lambda *_: False)
    other = compile_constraint(JsonSchema(schema), vocab)
    assert other.num_contexts < prepared.num_contexts
    rng = random.Random(3)
    for _ in range(12):
        one, two = prepared.matcher(), other.matcher()
        for _ in range(14):
            allowed = allowed_tokens(one, vocab)
            assert allowed == allowed_tokens(two, vocab), one.text
            assert allowed == {t for t in range(vocab.size) if one.fork().accept(t)}, one.text
            choice = sorted(allowed - {0})
            if not choice:
                break
            token_id = rng.choice(choice)
            assert one.accept(token_id)
            assert two.accept(token_id)


def _stops(table: np.ndarray, class_of: np.ndarray, state: int) -> bool:
    """Whether some text of the keys' spelling has no way from a state between characters."""
    text = slice_tables()[KEY_SLICE]
    pending, seen = [(state, 0)], {(state, 0)}
    for own, mode in pending:
        for byte in np.flatnonzero(text[mode] >= 0).tolist():
            after = int(table[own, class_of[byte]]), int(text[mode, byte])
            if after[0] < 0:
                return True
            if after not in seen:
                seen.add(after)
                pending.append(after)
    return False


PATTERNS = st.recursive(
    st.sampled_from(["a", "b", ".", "[^a]", "é", "[^é]", "\\w", '"']),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda p: f"(?:{p[0]}|{p[1]})"),
        inner.map(lambda p: f"(?:{p})*"),
        inner.map(lambda p: f"(?:{p}){{2,3}}"),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(PATTERNS, st.booleans())
def test_open_states_are_those_in_which_no_text_stops(pattern: str, goes_on: bool) -> None:
    dfa = regex_dfa(f"(?:{pattern})" + "[\\s\\S]*" * goes_on)
    body = key_body(dfa, RegularLimits())
    found = open_states(body.table, body.class_of)
    # State 0 is between characters; those that its characters lead to are, too.
    text = slice_tables()[KEY_SLICE]
    pending, seen = [(0, 0)], {(0, 0)}
    for own, mode in pending:
        for byte in np.flatnonzero(text[mode] >= 0).tolist():
            after = int(body.table[own, body.class_of[byte]]), int(text[mode, byte])
            if after[0] >= 0 and after not in seen:
                seen.add(after)
                pending.append(after)
    for own, mode in seen:
        assert found[own] == (mode == 0 and not _stops(body.table, body.class_of, own))
    assert not goes_on or found.any()


@pytest.mark.parametrize("num_made", [3, 20])
def test_only_a_schemas_nearest_steps_can_refuse_it(num_made, vocab, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    made = itertools.count()
    transition = PushdownTable.transition

    def fail_late(machine: PushdownTable, context: int, label: int) -> int:
        if next(made) >= num_made:
            raise GrammarTooComplexError("", "states", "too many")
        return transition(machine, context, label)

    compiler = GrammarCompiler(vocab)
    compiler.warm()
    names = {f"p{i}": {"type": "array", "items": {"type": "integer"}} for i in range(20)}
    constraint = JsonSchema({"type": "object", "properties": names})
    monkeypatch.setattr(PushdownTable, "transition", fail_late)
    if num_made < grammar_module._NUM_CHECKED:
        with pytest.raises(GrammarTooComplexError):
            compiler.compile(constraint)
    else:
        assert not compiler.compile(constraint).preparation.run()
        assert next(made) > num_made  # it was met, and passed over
