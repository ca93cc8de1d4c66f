"""How numbers that must be integers are written."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.grammars import JsonSchema, Vocabulary, compile_constraint

BYTES = Vocabulary.from_tokens([bytes((i,)) for i in range(256)] + [None], {256})

INTEGERS: list[tuple[Any, str, list[str]]] = [
    ({"type": "integer"}, "15", ["15.0", "1.5e1", "1.11111111111111112E+182"]),
    ({"type": "integer", "minimum": 3, "maximum": 20}, "15", ["15.0", "1.5e1"]),
    ({"type": "integer", "multipleOf": 5}, "-15", ["-15.0", "-1.5e1"]),
    ({"enum": [15, 20]}, "15", ["15.0", "2e1"]),
    ({"const": 15}, "15", ["15.0"]),
    ({"type": ["integer", "null"]}, "15", ["15.0"]),
    ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "15", ["15.0"]),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "0", ["0.0", "0e1"]),
]


@pytest.mark.parametrize(("schema", "plain", "others"), INTEGERS)
def test_integers_are_written_by_their_digits_alone(
    schema: Any, plain: str, others: list[str]
) -> None:
    grammar = compile_constraint(JsonSchema(schema, integers="plain"), BYTES)
    anyhow = compile_constraint(JsonSchema(schema), BYTES)
    assert grammar.match(plain).accepted
    assert anyhow.match(plain).accepted
    for other in others:
        assert not grammar.match(other).accepted
        assert anyhow.match(other).accepted


@pytest.mark.parametrize("text", ["1.5", "2.0", "2", "1e-7", "-5E+2"])
@pytest.mark.parametrize("schema", [{"type": "number"}, {"type": "number", "minimum": -600}])
def test_other_numbers_are_written_in_any_way(schema: Any, text: str) -> None:
    assert compile_constraint(JsonSchema(schema, integers="plain"), BYTES).match(text).accepted


def test_what_is_too_long_for_digits_keeps_its_other_spellings() -> None:
    schema = {"type": "integer", "minimum": 1e300, "maximum": 1e300}
    grammar = compile_constraint(JsonSchema(schema, integers="plain"), BYTES)
    assert grammar.match("1e300").accepted or grammar.match("1" + "0" * 300).accepted
