"""What is written is a subset of what is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.grammars import (
    AnyOf,
    Choice,
    Ebnf,
    FixedText,
    JsonSchema,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    Vocabulary,
    compile_constraint,
    for_writing,
)

BYTES = Vocabulary.from_tokens([*(bytes((b,)) for b in range(256)), None], {256})


def matches(constraint: object, text: str) -> bool:
    return bool(compile_constraint(constraint, BYTES).match(text))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("constraint", "text", "written"),
    [
        (Regex(r"\d{2}"), "19", True),
        (Regex(r"\d{2}"), "١٩", False),
        (Regex(r"(?i)\w+"), "naive", True),
        (Regex(r"(?i)\w+"), "naïve", False),
        (Regex(r"(?i)[\w.]+k"), "aſk", False),
        (Regex(r"(?u)\w+"), "naïve", True),
        (Regex(r"[à-ü]+"), "ï", True),
        (Regex(r"[^,]+,\d"), "ï,١", False),
        (Regex(r"[^,]+,\d"), "ï,1", True),
        (Regex(r"[^\d]"), "١", False),
        (Regex(r"\W\w\b"), "-é", False),
        (Regex(r"\W\w\b"), "—e", True),
        (Regex(r"(?!\d)\w+"), "é1", False),
        (Regex(r"(?=[^ -~])\w"), "é", True),  # nothing of it is ASCII
        (Regex(r"a\sb", "ecma"), "a b", True),
        (Regex(r"a\sb", "ecma"), "a\u00a0b", False),
        (Regex(r"(?u)a\sb", "ecma"), "a\u00a0b", True),
        (Ebnf(r"start: /\d{3}/"), "123", True),
        (Ebnf(r"start: /\d{3}/"), "١٢٣", False),
        (Ebnf(r"start: A" + "\n" + r"A: /(?u)\w/+"), "né", True),
        (Ebnf(r"start: A" + "\n" + r"A: /\w/u"), "é", True),
        (Ebnf(r'root ::= [^0-9] "é"'), "éé", True),
        (StructuralTag(Tag("<n>", Regex(r"\d+"), "</n>")), "<n>١</n>", False),
        (StructuralTag(Tag("<n>", Ebnf(r"start: /\d/"), "</n>")), "<n>١</n>", False),
        (StructuralTag(Tag("<n>", Ebnf(r"start: /\d/"), "</n>")), "<n>1</n>", True),
    ],
)
def test_classes_write_ascii_unless_they_are_opened(constraint, text, written) -> None:
    if written:
        assert matches(constraint, text)
    assert matches(for_writing(constraint), text) == written


pieces = st.sampled_from(
    [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\b", "[", "[^", "]", "(", "(?!", "(?=", "(?<!",
     ")", "a", "é", "-", "+", "?", "(?i:"]
)  # fmt: skip


@given(
    st.lists(pieces, max_size=7).map("".join),
    st.text(st.sampled_from("a1é١ \u00a0-ſ"), max_size=3),
    st.sampled_from(["python", "ecma"]),
)
def test_what_is_written_is_accepted(pattern: str, text: str, dialect) -> None:
    from ramet.grammars import ConstraintError

    try:
        wide = compile_constraint(Regex(pattern, dialect), BYTES)
    except ConstraintError:
        return
    narrow = compile_constraint(for_writing(Regex(pattern, dialect)), BYTES)
    if narrow.match(text):
        assert wide.match(text)


def test_regular_parts_of_a_tag_are_narrowed_and_nothing_else() -> None:
    digits, ascii_digits = Regex(r"\d+"), Regex(r"\d+", classes="ascii")
    tag = Tag("<n>", digits, "</n>")
    narrowed = for_writing(StructuralTag(Series((FixedText("a"), AnyOf((tag, Repeated(tag)))))))
    assert narrowed == StructuralTag(
        Series(
            (
                FixedText("a"),
                AnyOf(
                    (Tag("<n>", ascii_digits, "</n>"), Repeated(Tag("<n>", ascii_digits, "</n>")))
                ),
            )
        )
    )


@pytest.mark.parametrize(
    "constraint", [Choice(("a",)), JsonSchema({"pattern": r"^\d$"}, digits="bounded")]
)
def test_what_is_narrow_enough_stays_the_same_object(constraint) -> None:  # type: ignore[no-untyped-def]
    assert for_writing(constraint) is constraint
