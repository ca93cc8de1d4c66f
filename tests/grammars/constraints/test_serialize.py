"""Promised: constraints survive the way to JSON and back; anything else is refused by place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    AnyOf,
    Choice,
    Constraint,
    ConstraintError,
    Ebnf,
    FixedText,
    FreeText,
    JsonObject,
    JsonSchema,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
    constraint_from_json,
    constraint_to_json,
)

texts = st.text(max_size=4)
leaves: st.SearchStrategy[Part] = st.one_of(
    st.builds(FixedText, texts),
    st.builds(FreeText, st.lists(texts, max_size=2).map(tuple)),
    st.builds(Regex, texts, st.sampled_from(["python", "ecma"])),
    st.builds(Ebnf, texts, st.just("lark"), st.one_of(st.none(), texts)),
    st.builds(Choice, st.lists(texts, max_size=3).map(tuple)),
    st.builds(JsonObject, st.sampled_from(["none", "compact", "pretty"])),
)


def larger(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    tags = st.builds(Tag, texts, parts, texts)
    several = st.lists(parts, max_size=3).map(tuple)
    return st.one_of(
        tags,
        st.builds(Series, several),
        st.builds(AnyOf, several),
        st.builds(Repeated, parts, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 9))),
        st.builds(TriggeredTags, st.lists(tags, max_size=2).map(tuple), minimum=st.integers(0, 2)),
    )


@settings(max_examples=100, deadline=None)
@given(st.recursive(leaves, larger, max_leaves=6))
def test_there_and_back(root: Part) -> None:
    tag = StructuralTag(root)
    assert constraint_from_json(json.loads(json.dumps(constraint_to_json(tag)))) == tag


def test_schemas_there_and_back() -> None:
    schema = JsonSchema({"enum": [[1], {"a": None}]}, "none", False, {"x": True})
    again = constraint_from_json(json.loads(json.dumps(constraint_to_json(schema))))
    assert isinstance(again, JsonSchema)
    assert vars(again) == vars(schema)


def test_defaults_may_be_left_out() -> None:
    assert constraint_from_json({"kind": "regex", "pattern": "a"}) == Regex("a")
    value = {
        "kind": "structural_tag",
        "root": {
            "kind": "triggered_tags",
            "tags": [{"begin": "<a>", "content": {"kind": "free_text"}, "end": "</a>"}],
        },
    }
    expected: Constraint = StructuralTag(TriggeredTags((Tag("<a>", FreeText(), "</a>"),)))
    assert constraint_from_json(value) == expected


@pytest.mark.parametrize(
    ("value", "path", "keyword"),
    [
        ([], "", ""),
        ({}, "", "kind"),
        ({"kind": "nope"}, "", "kind"),
        ({"kind": "free_text"}, "", "kind"),
        ({"kind": "regex"}, "", "pattern"),
        ({"kind": "regex", "pattern": 1}, "/pattern", "pattern"),
        ({"kind": "regex", "pattern": "a", "flags": "i"}, "/flags", "flags"),
        ({"kind": "regex", "pattern": "a", "dialect": "perl"}, "/dialect", "dialect"),
        ({"kind": "choice", "choices": ["a", 1]}, "/choices/1", "1"),
        (
            {"kind": "structural_tag", "root": {"kind": "series", "parts": [{"kind": "x"}]}},
            "/root/parts/0",
            "kind",
        ),
        (
            {
                "kind": "structural_tag",
                "root": {"kind": "repeated", "part": {"kind": "free_text"}, "minimum": True},
            },
            "/root/minimum",
            "minimum",
        ),
    ],
)
def test_mistakes_are_named_by_place(value: object, path: str, keyword: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        constraint_from_json(value)
    assert (caught.value.path, caught.value.keyword) == (path, keyword)
