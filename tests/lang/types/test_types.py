"""What a type asks of the model, and what value comes back."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, StringConstraints
from typing_extensions import TypedDict

from ramet.grammars import ConstraintError
from ramet.grammars.constraints import Choice, JsonSchema, Regex
from ramet.lang import (
    NodeFailedError,
    OutputParseError,
    OutputTruncatedError,
    OutputTypeError,
    Pattern,
    ScriptError,
    State,
    choice,
    ebnf,
    json,
    program,
    regex,
    text,
)
from ramet.lang.types.labels import type_label
from ramet.lang.types.matching import match_text
from ramet.lang.types.types import INTEGER, NUMBER, described_output, output_type
from ramet.runtime.api.events import Finished, TextDelta, Timings, Usage


class Report(BaseModel):
    title: str
    score: Annotated[int, Field(ge=0, le=10)]
    tags: list[Literal["a", "b"]] = []


@dataclass
class Point:
    x: int
    y: float


class Movie(TypedDict):
    name: str
    year: int


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("annotation", "written", "value"),
    [
        (Report, '{"title": "t", "score": 3}', Report(title="t", score=3)),
        (Point, '{"x": 1, "y": 2.5}', Point(1, 2.5)),
        (Movie, '{"name": "m", "year": 1999}', {"name": "m", "year": 1999}),
        (list[int], "[1, 2]", [1, 2]),
        (Colour, "blue", Colour.BLUE),
        (Level, "2", Level.HIGH),
        (Literal["yes", "no"], "no", "no"),
        (Literal[1, 2], "2", 2),
        (int, "-12", -12),
        (float, "2.5e3", 2500.0),
        (bool, "True", True),
        (str, "anything", "anything"),
    ],
)
def test_a_type_gives_its_values_and_its_texts_match(scripted, annotation, written, value) -> None:
    @program
    def ask(s: State) -> Any:
        return s.gen("x", annotation)

    # the backend refuses a script that the type's constraint doesn't allow
    run = ask.run(backend=scripted({"x": written}))
    assert run.result == value
    assert type(run.result) is type(value)
    assert run.text() == written


@pytest.mark.parametrize(
    ("annotation", "written"),
    [
        (Report, '{"title": "t", "score": 11}'),
        (Report, '{"title": "t"}'),
        (Literal["yes", "no"], "maybe"),
        (int, "1.5"),
        (int, "007"),
        (bool, "true"),
        (Colour, "RED"),
    ],
)
def test_other_texts_are_refused_by_the_constraint(scripted, annotation, written) -> None:
    @program
    def ask(s: State) -> Any:
        return s.gen("x", annotation)

    with pytest.raises(NodeFailedError) as caught:
        ask.run(backend=scripted({"x": written}))
    assert isinstance(caught.value.__cause__, ScriptError)
    loose = scripted({"x": written}, check_constraints=False)
    with pytest.raises(NodeFailedError) as caught:
        ask.run(backend=loose)
    assert isinstance(caught.value.__cause__, OutputParseError)


def test_a_number_that_no_float_holds_is_no_value() -> None:
    numbers = described_output(JsonSchema({"type": "number"}), "number")
    assert numbers.parse("1.5e300") == 1.5e300
    with pytest.raises(OutputParseError, match="more than a float can hold"):
        numbers.parse("1e400")


def test_a_value_cut_off_by_max_tokens_says_so(scripted) -> None:
    class Short(type(scripted())):
        async def stream(self, call):  # type: ignore[no-untyped-def]
            yield TextDelta('{"title": "t')
            yield Finished("length", Usage(), Timings())

    @program
    def ask(s: State) -> Any:
        return s.gen("x", Report, max_tokens=5)

    with pytest.raises(NodeFailedError, match="max_tokens \\(5\\)") as caught:
        ask.run(backend=Short())
    assert isinstance(caught.value.__cause__, OutputTruncatedError)
    assert caught.value.__cause__.text == '{"title": "t'


@pytest.mark.parametrize("annotation", [None, object(), Literal[""], lambda x: x])
def test_types_that_no_text_can_be_are_refused(scripted, annotation) -> None:
    @program
    def ask(s: State) -> None:
        s.gen("x", dtype=annotation) if annotation is not None else output_type(annotation)

    backend = scripted()
    with pytest.raises(OutputTypeError):
        ask.run(backend=backend)
    assert backend.calls == []


@given(st.integers(-(10**18) + 1, 10**18 - 1))
@settings(max_examples=50, deadline=None)
def test_every_integer_is_allowed_and_read_back(number: int) -> None:
    assert match_text(INTEGER, str(number))
    assert output_type(int).parse(str(number)) == number


@given(st.floats(-1e15, 1e15).filter(lambda number: number == 0 or abs(number) > 1e-90))
@settings(max_examples=50, deadline=None)
def test_floats_are_allowed_as_python_prints_them(number: float) -> None:
    written = format(number, ".12g")
    assert match_text(NUMBER, written)
    assert output_type(float).parse(written) == float(written)


def test_options_say_the_same_as_types(scripted) -> None:
    backend = scripted({"a": "12", "b": "y", "c": '{"k": 1}', "d": "ab"})

    @program
    def ask(s: State) -> None:
        s.gen("a", regex="[0-9]+")
        s.gen("b", choices=["x", "y"])
        s.gen("c", json_schema={"type": "object"})
        s.gen("d", ebnf='root ::= "a" "b"')

    run = ask.run(backend=backend)
    assert run.values == {"a": "12", "b": "y", "c": '{"k": 1}', "d": "ab"}
    kinds = [call.constraint.kind for call in backend.calls]
    assert kinds == ["regex", "choice", "json_schema", "ebnf"]


def test_patterns_match_without_a_model() -> None:
    assert regex("[0-9]+").match("123")
    assert choice("a", "b").match("b")
    assert json().match('{"a": 1}')
    assert json(Report).match('{"title": "x", "score": 1}')
    assert ebnf('root ::= "a"+').match("aaa")
    wrong = regex("[0-9]+").match("12x")
    assert (bool(wrong), wrong.offset) == (False, 2)
    short = text("ab").match("a")
    assert (bool(short), short.offset) == (False, 1)


def test_patterns_are_joined() -> None:
    dated = text("on (") + regex("[0-9]{4}|now") + ") " + choice("a.m.", "p.m.")
    assert isinstance(dated.constraint, Regex)
    assert dated.match("on (2024) p.m.")
    assert dated.match("on (now) a.m.")
    assert not dated.match("on (2024) pXm.")
    assert ("x" + regex("y")).match("xy")
    assert text("a").constraint == Regex("a")


def test_sequences_may_hold_json_and_grammars(scripted) -> None:
    call = "call " + json(Point) + regex(" *; *") + ebnf('root ::= "end" "!"*') + "."
    assert call.match('call {"x": 1, "y": 2}; end!!.')
    wrong = call.match('call {"x": 1, "z": 2}; end!!.')
    assert (bool(wrong), wrong.offset) == (False, 15)
    nested = text("<") + Pattern((call.constraint,)) + ">"
    assert nested.match('<call {"x": 1, "y": 2};end.>')

    @program
    def ask(s: State) -> Any:
        return s.gen("x", call)

    written = 'call {"x": 1, "y": 2};end.'
    assert ask.run(backend=scripted({"x": written})).result == written


@given(st.text(max_size=8), st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_literal_text_in_a_joined_pattern_is_literal(literal: str, options: list[str]) -> None:
    joined = text(literal) + choice(*options) + literal
    for option in options:
        try:
            encoded = f"{literal}{option}{literal}"
            encoded.encode()
        except UnicodeEncodeError:
            continue
        assert joined.match(encoded)


def test_a_constraint_that_can_not_be_honoured_says_why() -> None:
    with pytest.raises(ConstraintError):
        regex("(a)\\1").match("aa")
    with pytest.raises(OutputTypeError):
        choice()
    with pytest.raises(OutputTypeError):
        json("{not json").match("")
    with pytest.raises(OutputTypeError):
        (text("")).constraint  # noqa: B018


def test_patterns_are_output_types(scripted) -> None:
    backend = scripted({"a": "v1.2", "b": "yes"})

    @program
    def ask(s: State) -> None:
        s.gen("a", "v" + regex(r"[0-9]\.[0-9]"))
        s.gen("b", choice("yes", "no"))

    run = ask.run(backend=backend)
    assert run["a"] == "v1.2"
    assert backend.calls[1].constraint == Choice(("yes", "no"))


def test_a_models_schema_is_the_types_own(scripted) -> None:
    output = output_type(Report)
    assert isinstance(output.constraint, JsonSchema)
    schema = Report.model_json_schema()
    assert output.constraint.schema == {**schema, "additionalProperties": False}
    assert output.label == "Report"


def test_fields_come_in_their_order_and_no_others_do() -> None:
    constraint = output_type(list[Point]).constraint
    assert constraint is not None
    assert match_text(constraint, '[{"x": 1, "y": 2}]')
    assert not match_text(constraint, '[{"y": 2, "x": 1}]')
    assert not match_text(constraint, '[{"x": 1, "y": 2, "z": 3}]')
    assert json(dict[str, int]).match('{"anything": 3}')


@pytest.mark.parametrize(
    ("annotation", "label"),
    [
        (Report, "Report"),
        (list[int], "list[int]"),
        (dict[str, int] | None, "dict[str, int] | None"),
        (Literal["a", 1], "Literal['a', 1]"),
        (Annotated[int, Field(ge=0, le=10)], "int from 0 to 10"),
        (Annotated[str, Field(pattern="a+")], "str matching 'a+'"),
        (Annotated[str, "note"], "Annotated[str]"),
        (Annotated[str, StringConstraints(min_length=2, max_length=2)], "str of 2 characters"),
        (list[Annotated[str, Field(max_length=3)]], "list[str] of items of at most 3 characters"),
        (
            Annotated[
                list[Annotated[str, Field(max_length=40)]], Field(min_length=3, max_length=4)
            ],
            "list[str] of 3 to 4 items of at most 40 characters",
        ),
    ],
)
def test_labels_speak_the_users_types(annotation: Any, label: str) -> None:
    assert type_label(annotation) == label


def test_a_wrong_value_is_described_by_its_places() -> None:
    with pytest.raises(OutputParseError) as caught:
        output_type(list[Report]).parse('[{"title":"t","score":11,"tags":["c"]}]')
    assert str(caught.value) == (
        "the output is not list[Report]: [0].score: Input should be less than or equal to 10; "
        "[0].tags[0]: Input should be 'a' or 'b'; "
        """it is '[{"title":"t","score":11,"tags":["c"]}]'"""
    )


NUMBERS_AND_STRINGS = r"-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,4})?([eE][0-9]{1,3})?|\"[a-z0-9]*\""
DECIMALS = [
    Decimal,
    Annotated[Decimal, Field(ge=0, lt=100, decimal_places=2)],
    Annotated[Decimal, Field(max_digits=5, decimal_places=2)],
    Annotated[Decimal, Field(max_digits=5)],
    Annotated[Decimal, Field(gt=-3, multiple_of=0.5)],
]


@pytest.mark.parametrize("type_", DECIMALS)
@given(
    text=st.from_regex(
        r"-?(0|[1-9][0-9]{0,6})(\.[0-9]{1,4})?([eE][0-9]{1,3})?|\"[a-z0-9]*\"", fullmatch=True
    )
)
@settings(max_examples=60, deadline=None)
def test_what_a_decimal_may_be_written_as_is_read(type_: Any, text: str) -> None:
    output = output_type(type_)
    assert output.constraint is not None
    if match_text(output.constraint, text):
        assert isinstance(output.parse(text), Decimal)
    assert not match_text(output.constraint, '"1x"')
    assert match_text(output.constraint, "1.5")


def test_branches_of_a_tagged_union_name_their_tag() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"] = "cat"
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"] = "dog"

    output = output_type(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert output.constraint is not None
    assert match_text(output.constraint, '{"kind":"dog"}')
    assert not match_text(output.constraint, '{"lives":9}')
    assert not match_text(output.constraint, '{"kind":"dog","lives":9}')
    assert isinstance(output.parse('{"kind":"cat","lives":9}'), Cat)
