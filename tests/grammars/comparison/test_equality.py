"""Promised: regular constraints are equal exactly if they accept the same texts, and a
counter-example is a shortest one."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    Choice,
    ConstraintError,
    GrammarTooComplexError,
    LanguageDifference,
    Regex,
    compare_languages,
)

TEXTS = ["".join(t) for n in range(6) for t in itertools.product("ab", repeat=n)]


def patterns() -> st.SearchStrategy[str]:
    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.lists(inner, min_size=1, max_size=3).map("".join),
            st.lists(inner, min_size=2, max_size=3).map(lambda o: f"(?:{'|'.join(o)})"),
            st.builds(lambda p, q: f"(?:{p}){q}", inner, st.sampled_from(["*", "+", "?", "{1,2}"])),
        )

    return st.recursive(st.sampled_from(["a", "b", "[ab]", ""]), larger, max_leaves=5)


def of_length(pattern: str, length: int) -> set[str]:
    return {t for t in TEXTS if len(t) <= length and re.fullmatch(pattern, t)}


@settings(max_examples=80, deadline=None)
@given(patterns(), patterns())
def test_equality_is_that_of_the_matched_texts(first: str, second: str) -> None:
    found = compare_languages(Regex(first), Regex(second))
    if found is None:
        assert of_length(first, 5) == of_length(second, 5)
        return
    accepted = [re.fullmatch(p, found.example) is not None for p in (first, second)]
    assert accepted == [found.accepted_by == "first", found.accepted_by == "second"]
    assert of_length(first, len(found.example) - 1) == of_length(second, len(found.example) - 1)


def test_a_choice_equals_a_regex_of_its_texts() -> None:
    assert compare_languages(Choice(("ab", "b")), Regex("a?b")) is None
    assert compare_languages(Choice(("ab",)), Regex("a?b")) == LanguageDifference("b", "second")


def test_dialects_are_read_as_they_are_written() -> None:
    ascii_digits = Regex("[0-9]+")
    assert compare_languages(Regex(r"\d+", "ecma"), ascii_digits) is None
    found = compare_languages(Regex(r"\d+"), ascii_digits)
    assert found is not None
    assert found.accepted_by == "first"
    assert found.example.isdigit()
    assert not found.example.isascii()


def test_a_language_with_no_text_is_compared_too() -> None:
    empty = Regex(r"a(?!a)a")
    assert compare_languages(empty, Regex(r"b(?!b)b")) is None
    assert compare_languages(empty, Regex("a")) == LanguageDifference("a", "second")


def test_a_wrong_pattern_is_named() -> None:
    with pytest.raises(ConstraintError, match="first: offset"):
        compare_languages(Regex("(a"), Regex("a"))


def test_too_much_work_is_refused() -> None:
    with pytest.raises(GrammarTooComplexError, match="1500 states"):
        compare_languages(Regex("[ab]*a[ab]{10}"), Regex("[ab]*a[ab]{11}"))
    with pytest.raises(GrammarTooComplexError, match="takes longer than -1 s"):
        compare_languages(Regex("a"), Regex("b"), max_seconds=-1)
