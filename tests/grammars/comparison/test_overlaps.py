"""Promised: overlapping alternatives are named with a text that both accept; what can't be
compared is named as well."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    AnyOf,
    Choice,
    Ebnf,
    FixedText,
    FreeText,
    JsonObject,
    Regex,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
    find_overlaps,
)

TEXTS = ["".join(t) for n in range(5) for t in itertools.product("ab", repeat=n)]


def overlaps(constraint) -> list[tuple[str, str, str]]:
    report = find_overlaps(constraint)
    assert report.not_compared == ()
    return [(o.first, o.second, o.example) for o in report.overlaps]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("cat|c.t|dog", [("cat", "c.t", "cat")]),
        ("(?:cat|c.t)", [("cat", "c.t", "cat")]),
        ("(cat|c.t)", [("cat", "c.t", "cat")]),
        ("(?P<pet>cat|c.t)", [("cat", "c.t", "cat")]),
        ("(a|b)(b|a)", []),
        ("a|b", []),
        ("a", []),
        (r"[|]|\||a", [("[|]", r"\|", "|")]),
        ("[]|]|]", [("[]|]", "]", "]")]),
        ("[^]|]|a", [("[^]|]", "a", "a")]),
        ("(?i)a|A", [("(?i)a", "(?i)A", "a")]),
        ("^ab?$|a", [("^ab?$", "a", "a")]),
        (r"é|\w", [("é", r"\w", "é")]),
        ("a?|b?", [("a?", "b?", "")]),
    ],
)
def test_options_of_a_regex(pattern: str, expected: list[tuple[str, str, str]]) -> None:
    assert overlaps(Regex(pattern)) == expected


def test_an_ecma_class_may_be_empty() -> None:
    assert overlaps(Regex("[]|a+|aa", "ecma")) == [("a+", "aa", "aa")]


OPTIONS = st.lists(st.sampled_from(["a", "b", "[ab]", "a*", "(?:a|b)b", "b+", ""]), max_size=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(OPTIONS.map("".join), min_size=2, max_size=4))
def test_options_overlap_exactly_if_a_text_matches_both(options: list[str]) -> None:
    # Equal patterns have equal names, so each pair is looked up by its order.
    expected = [
        (first, second)
        for first, second in itertools.combinations(options, 2)
        if any(re.fullmatch(first, t) and re.fullmatch(second, t) for t in TEXTS)
    ]
    found = overlaps(Regex("|".join(options)))
    assert all(re.fullmatch(first, t) and re.fullmatch(second, t) for first, second, t in found)
    # The texts tried are short: an overlap may need a longer one.
    assert [pair for pair in expected if pair not in [f[:2] for f in found]] == []


def test_a_choice_names_texts_that_it_has_twice() -> None:
    assert overlaps(Choice(("a", "b", "a"))) == [("/choices/0", "/choices/2", "a")]


def test_tags_overlap_by_begin_and_by_text() -> None:
    tags = (
        Tag("<a", Regex("x+"), ">"),
        Tag("<ab", FreeText(), ">"),
        Tag("<a", Regex("b?x+"), ">"),
        Tag("<c", JsonObject(), ">"),
    )
    report = find_overlaps(StructuralTag(TriggeredTags(tags)))
    found = [(o.first[-1], o.second[-1], o.what, o.example) for o in report.overlaps]
    assert found == [
        ("0", "1", "begin", "<ab"),
        ("0", "2", "begin", "<a"),
        ("1", "2", "begin", "<ab"),
        ("0", "2", "text", "<ax>"),
    ]
    assert [(n.path, n.reason.split(" is")[0]) for n in report.not_compared] == [
        ("/root/tags/1", "a free_text"),
        ("/root/tags/3", "a json_object"),
    ]


def test_alternatives_are_found_inside_of_other_parts() -> None:
    inner = AnyOf((FixedText("ab"), Series((FixedText("a"), Regex("b|c|[cd]")))))
    report = find_overlaps(StructuralTag(Series((FixedText("x"), inner))))
    path = "/root/parts/1/options"
    assert [(o.first, o.second, o.example) for o in report.overlaps] == [
        (f"{path}/0", f"{path}/1", "ab"),
        (f"{path}/1/parts/1: c", f"{path}/1/parts/1: [cd]", "c"),
    ]


@pytest.mark.parametrize("constraint", [JsonObject(), Ebnf('root ::= "a" | "a"')])
def test_constraints_that_are_not_regular_are_named(constraint) -> None:
    report = find_overlaps(constraint)
    assert report.overlaps == ()
    (skipped,) = report.not_compared
    assert constraint.kind in skipped.reason


def test_work_is_bounded() -> None:
    (skipped,) = find_overlaps(Regex("a|b"), max_seconds=-1).not_compared
    assert "-1 s have passed" in skipped.reason
    (skipped,) = find_overlaps(Regex("|".join("a" * 65))).not_compared
    assert "more than 64 options" in skipped.reason
    calls = tuple(Tag(f"<{i}>", FixedText(""), "") for i in range(65))
    (skipped,) = find_overlaps(StructuralTag(AnyOf(calls)), max_seconds=100).not_compared
    assert "only the first 64" in skipped.reason
    (skipped,) = find_overlaps(Regex("[ab]*a[ab]{10}|[ab]*a[ab]{11}"), max_seconds=100).not_compared
    assert "1500 states" in skipped.reason
    report = find_overlaps(Choice(("a",) * 200), max_seconds=100)
    assert len(report.overlaps) == 100
    assert "more than 100 overlaps" in report.not_compared[0].reason


def test_options_that_mean_something_else_alone_are_not_compared() -> None:
    (skipped,) = find_overlaps(Regex("(?x) a | b  # | c\n | a")).not_compared
    assert "don't stand for themselves" in skipped.reason
