"""Promised: any tree of parts means what its parts mean, put together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ramet.grammars import (
    AnyOf,
    Constraint,
    ConstraintError,
    Ebnf,
    FixedText,
    FreeText,
    Grammar,
    JsonSchema,
    Matcher,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)

ALPHABET = 'a<1"'
MAX_LEN = 5
TEXTS = ["".join(t) for n in range(MAX_LEN + 1) for t in itertools.product(ALPHABET, repeat=n)]

words = st.sampled_from(["a", "<", "1", "<a", "aa", "1<", '"'])
leaves: st.SearchStrategy[Part] = st.one_of(
    st.builds(FixedText, st.one_of(words, st.just(""))),
    st.builds(FreeText, st.lists(words, max_size=2).map(tuple)),
    st.sampled_from([Regex("a*1?"), Regex("[<a]{1,2}")]),
    st.just(Ebnf('root ::= "<" root "1" | "a"')),
    st.sampled_from(
        [
            JsonSchema({"enum": ["a", 1, 11]}),
            JsonSchema({"enum": ["", "<"]}),
            JsonSchema({"const": 1}),
        ]
    ),
)


def larger(parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Part]:
    tags = st.builds(Tag, words, parts, words)
    several = st.lists(parts, min_size=1, max_size=3).map(tuple)
    return st.one_of(
        tags,
        st.builds(Series, several),
        st.builds(AnyOf, several),
        st.builds(Repeated, parts, st.integers(0, 1), st.sampled_from([None, 1, 2])),
        st.builds(
            TriggeredTags,
            st.lists(tags, min_size=1, max_size=2).map(tuple),
            minimum=st.integers(0, 1),
            maximum=st.sampled_from([None, 1]),
        ),
    )


def joined(x: frozenset[str], y: frozenset[str]) -> frozenset[str]:
    return frozenset(v + w for v in x for w in y if len(v) + len(w) <= MAX_LEN)


def repeated(one: frozenset[str], minimum: int, maximum: int | None) -> frozenset[str]:
    result, power = frozenset[str](), frozenset({""})
    for n in range((MAX_LEN + 1 if maximum is None else maximum) + 1):
        if n >= minimum:
            result |= power
        power = joined(power, one)
    return result


def meaning(part: Part) -> frozenset[str]:
    """The texts of a part, up to MAX_LEN characters."""
    match part:
        case FixedText(text):
            return frozenset({text})
        case FreeText(excluded):
            return frozenset(t for t in TEXTS if not any(e in t for e in excluded))
        case Regex(pattern):
            return frozenset(t for t in TEXTS if re.fullmatch(pattern, t))
        case Ebnf():
            return frozenset({"a", "<a1", "<<a11"})
        case JsonSchema(schema):
            values = schema.get("enum", [schema.get("const")])
            return frozenset(f'"{v}"' if isinstance(v, str) else str(v) for v in values)
        case Series(parts):
            found = frozenset({""})
            for inner in parts:
                found = joined(found, meaning(inner))
            return found
        case AnyOf(options):
            return frozenset().union(*map(meaning, options))
        case Repeated(inner, minimum, maximum):
            return repeated(meaning(inner), minimum, maximum)
        case Tag(begin, content, end):
            inner = meaning(content)
            if isinstance(content, FreeText):
                inner = frozenset(t for t in inner if end not in t)
            return joined(joined(frozenset({begin}), inner), frozenset({end}))
        case TriggeredTags(tags, _, minimum, maximum):
            triggers = {tag.begin for tag in tags}
            triggers = {
                t for t in triggers if not any(t != u and t.startswith(u) for u in triggers)
            }
            quiet = frozenset(t for t in TEXTS if not any(u in t for u in triggers))
            one = frozenset[str]()
            for trigger in triggers:
                # Text up to the trigger, before whose end none is complete.
                until = frozenset(
                    t
                    for t in TEXTS
                    if t.endswith(trigger) and not any(u in t[:-1] for u in triggers)
                )
                for tag in tags:
                    if tag.begin.startswith(trigger):
                        rest = frozenset(t[len(trigger) :] for t in meaning(tag))
                        one |= joined(until, rest)
            return joined(repeated(one, minimum, maximum), quiet)
        case _:
            raise AssertionError(part)


@settings(max_examples=80, deadline=None)
@given(st.recursive(leaves, larger, max_leaves=5))
@example(AnyOf((JsonSchema({"enum": ["a", 1, 11]}), FixedText("11<"))))
@example(Series((JsonSchema({"const": 1}), Regex("a*1?"))))
@example(TriggeredTags((Tag("<a", FreeText(), "<"), Tag("a<", FixedText("1"), "a"))))
@example(Repeated(Series((Regex("a*1?"), JsonSchema({"enum": ["", "<"]}))), 0, None))
def test_trees_of_parts(compile_: Callable[[Constraint], Grammar], root: Part) -> None:
    expected = meaning(root)
    try:
        grammar = compile_(StructuralTag(root))
    except ConstraintError:
        assert not expected
        return
    prefixes = {text[:n] for text in expected for n in range(len(text) + 1)}
    check_below(grammar.matcher(), "", expected, prefixes)


def check_below(matcher: Matcher, text: str, expected: frozenset[str], prefixes: set[str]) -> None:
    """A matcher after ``text``, and after everything longer."""
    assert matcher.is_accepting == (text in expected), text
    if len(text) == MAX_LEN:
        return
    for c in ALPHABET:
        if matcher.accept_bytes(c.encode()):
            check_below(matcher, text + c, expected, prefixes)
            matcher.rollback(1)
        else:
            assert text + c not in prefixes, text + c
