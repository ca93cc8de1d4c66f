"""What is written is a subset of what is accepted."""

from __future__ import annotations

import pytest

from ramet.grammars import (
    AnyOf,
    Choice,
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


@pytest.mark.parametrize(
    ("pattern", "text", "written"),
    [
        (r"\d{2}", "19", True),
        (r"\d{2}", "١٩", False),
        (r"(?i)\w+", "naive", True),
        (r"(?i)\w+", "naïve", False),
        (r"(?u)\w+", "naïve", True),
        (r"[à-ü]+", "ï", True),
    ],
)
def test_classes_write_ascii_unless_they_are_opened(pattern: str, text: str, written: bool) -> None:
    assert compile_constraint(Regex(pattern), BYTES).match(text)
    assert bool(compile_constraint(for_writing(Regex(pattern)), BYTES).match(text)) == written


def test_regular_parts_of_a_tag_are_narrowed_and_nothing_else() -> None:
    digits = Regex(r"\d+")
    tag = Tag("<n>", digits, "</n>")
    narrowed = for_writing(StructuralTag(Series((FixedText("a"), AnyOf((tag, Repeated(tag)))))))
    assert narrowed == StructuralTag(
        Series(
            (
                FixedText("a"),
                AnyOf(
                    (
                        Tag("<n>", Regex(r"(?a)\d+"), "</n>"),
                        Repeated(Tag("<n>", Regex(r"(?a)\d+"), "</n>")),
                    )
                ),
            )
        )
    )


@pytest.mark.parametrize(
    "constraint",
    [
        Regex("[0-9]+"),
        Regex(r"\W"),
        Regex(r"[^\d]"),
        Regex(r"(?!\w)."),
        Regex(r".\b\w"),
        Regex(r"\d", "ecma"),
        Choice(("a",)),
        JsonSchema({"pattern": r"^\d$"}),
    ],
)
def test_what_is_narrow_enough_stays_the_same_object(constraint) -> None:  # type: ignore[no-untyped-def]
    assert for_writing(constraint) is constraint
