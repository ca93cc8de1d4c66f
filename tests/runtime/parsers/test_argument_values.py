"""Promised: a value that is written by its schema's rule is read back as that value."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.parsers.argument_values import (
    is_plain_text,
    listed_texts,
    read_value,
    write_value,
)

END = "</parameter>"

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def schema_and_value(draw):
    """A schema, and a value that it permits."""
    value = draw(VALUES)
    permissive = [{}, {"const": value}, {"enum": [value, draw(VALUES)]}]
    permissive.append({"anyOf": [{"type": "null"}, {"const": value}]})
    if isinstance(value, str):
        permissive += [{"type": "string"}, {"type": ["string", "null"]}]
        permissive += [{"type": "string", "minLength": len(value)}]
    return draw(st.sampled_from(permissive)), value


@given(schema_and_value())
def test_reading_inverts_writing(case):
    schema, value = case
    if isinstance(value, str) and is_plain_text(schema):
        value = value.replace(END, "")  # the grammar excludes it
    read = json.loads(read_value(write_value(value, schema, END), schema, END))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("03106", {"type": "string"}, "03106"),
        ("12345", {"anyOf": [{"type": "string"}, {"type": "null"}]}, "12345"),
        ("true", {"type": ["string", "null"]}, "true"),
        ("null", {"type": ["string", "null"]}, None),
        ('"x"', {"type": ["string", "null"]}, "x"),
        ("note", {"anyOf": [{"const": "decision"}, {"const": "note"}]}, "note"),
        ("3.5", {"anyOf": [{"type": "number"}]}, 3.5),
        ("[1]", {"type": "string", "maxLength": 9}, "[1]"),
        ("7", None, "7"),
    ],
)
def test_what_models_write_without_quotes_is_text(text, schema, value):
    assert json.loads(read_value(text, schema, END)) == value


def test_texts_that_cannot_stand_are_quoted():
    assert listed_texts({"enum": ["a", f"x{END}"]}, END) == ()
    assert listed_texts({"enum": ["a", "\nb"]}, END) == ()
    assert listed_texts({"enum": ["a", 1]}, END) == ()
    assert listed_texts({"enum": ["a", "b"], "description": "c"}, END) == ("a", "b")
