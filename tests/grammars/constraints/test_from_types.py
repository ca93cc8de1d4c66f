"""Python types become the schemas that pydantic gives them."""

from __future__ import annotations

import enum
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from ramet.grammars import (
    ConstraintError,
    JsonSchema,
    Vocabulary,
    compile_constraint,
    json_schema_of,
)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(TypedDict):
    x: int
    y: int


@dataclass
class Size:
    width: Annotated[int, Field(ge=1, le=9)]


class Shape(BaseModel):
    kind: Literal["dot", "box"]
    colour: Colour
    at: Point
    size: Size | None = None
    tags: Annotated[list[str], Field(max_length=2)] = []


def test_a_model_generates_what_it_validates(vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema(json_schema_of(Shape)), vocab)
    good = '{"kind": "dot", "colour": "red", "at": {"x": 1, "y": -2}, "size": {"width": 9}}'
    assert grammar.match(good)
    Shape.model_validate_json(good)
    for bad in (
        '{"kind": "line", "colour": "red", "at": {"x": 1, "y": 2}}',
        '{"kind": "dot", "colour": "red", "at": {"x": 1, "y": 2}, "size": {"width": 10}}',
        '{"kind": "dot", "colour": "red", "at": {"x": 1, "y": 2}, "tags": ["a", "b", "c"]}',
        '{"kind": "dot", "colour": "red"}',
    ):
        assert not grammar.match(bad)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Colour, '"blue"', '"green"'),
        (Point, '{"x": 1, "y": 2}', '{"x": 1}'),
        (Size, '{"width": 1}', '{"width": 0}'),
        (Literal[1, "a"], "1", "2"),
        (list[int] | None, "null", '["a"]'),
        (dict[str, bool], '{"a": true}', '{"a": 1}'),
    ],
)
def test_other_types(kind: object, good: str, bad: str, vocab: Vocabulary) -> None:
    grammar = compile_constraint(JsonSchema(json_schema_of(kind)), vocab)
    assert grammar.match(good)
    assert not grammar.match(bad)


def test_a_type_without_a_schema_is_refused() -> None:
    with pytest.raises(ConstraintError, match="has no JSON Schema"):
        json_schema_of(threading.Lock)
