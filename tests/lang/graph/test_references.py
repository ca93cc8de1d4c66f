"""Text and references are kept apart, whatever the text says."""

from __future__ import annotations

import html
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.lang.base.errors import DamagedReferenceError, ForeignValueError
from ramet.lang.graph.references import Ref, ReferenceTable

# Texts that try to look like references: pieces of real tokens, of the form, and of anything.
_HEX = "0123456789abcdef"
_FORGED = st.builds(
    lambda run, index, digest: f"ramet_ref_{run}_{index}_{digest}",
    st.text(_HEX, min_size=16, max_size=16),
    st.text(_HEX, min_size=8, max_size=8),
    st.text(_HEX, min_size=32, max_size=32),
)
_HOSTILE = st.one_of(
    st.text(max_size=20),
    _FORGED,
    st.sampled_from(
        ["ramet_ref_", "ramet_ref", "_", "0" * 16, "{0}", "{x}", "%s", "\x00", "_ref_"]
    ),
)


@given(st.lists(st.one_of(_HOSTILE, st.integers(0, 5)), max_size=8))
@settings(max_examples=200, deadline=None)
def test_text_around_references_is_never_a_reference(items: list[str | int]) -> None:
    table = ReferenceTable()
    refs = [Ref(str(number)) for number in range(6)]
    text = "".join(item if isinstance(item, str) else table.token(refs[item]) for item in items)
    parts = table.parse(text)
    expected: list[str | Ref] = []
    for item in items:
        if isinstance(item, int):
            expected.append(refs[item])
        elif item and expected and isinstance(expected[-1], str):
            expected[-1] += item
        elif item:
            expected.append(item)
    assert list(parts) == expected


@given(_FORGED)
@settings(max_examples=100, deadline=None)
def test_a_forged_reference_is_text(forged: str) -> None:
    table = ReferenceTable()
    table.token(Ref("0"))
    assert table.parse(forged) == (forged,)


def test_the_tokens_of_one_run_with_another_index_are_text_that_is_refused() -> None:
    table = ReferenceTable()
    token = table.token(Ref("0"))
    other = token.replace("_00000000_", "_00000001_")
    with pytest.raises(DamagedReferenceError):
        table.parse(other)


def test_a_reference_of_another_run_is_named_as_such() -> None:
    mine, other = ReferenceTable(), ReferenceTable()
    with pytest.raises(ForeignValueError):
        mine.parse(f"see {other.token(Ref('0'))}")


@pytest.mark.parametrize("damage", [str.upper, lambda t: t[:-1], lambda t: t[10:], str.title])
def test_a_damaged_reference_is_refused(damage) -> None:  # type: ignore[no-untyped-def]
    table = ReferenceTable()
    with pytest.raises(DamagedReferenceError):
        table.parse("a " + damage(table.token(Ref("0"))))


@pytest.mark.parametrize("escape", [json.dumps, html.escape, repr])
def test_references_survive_escaping(escape) -> None:  # type: ignore[no-untyped-def]
    table = ReferenceTable()
    ref = Ref("3", ">10")
    assert ref in table.parse(escape(f"<a> {table.token(ref)} “b”"))


def test_the_methods_of_a_str_subclass_are_not_asked() -> None:
    class Sly(str):
        def __str__(self) -> str:
            return "something else"

        def __format__(self, spec: str) -> str:
            return "something else"

    assert ReferenceTable().parse(Sly("plain")) == ("plain",)


def test_one_reference_has_one_token_and_specs_are_distinguished() -> None:
    table = ReferenceTable()
    assert table.token(Ref("0")) == table.token(Ref("0"))
    assert table.token(Ref("0")) != table.token(Ref("0", ".2f"))
