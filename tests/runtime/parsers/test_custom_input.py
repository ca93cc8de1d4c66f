"""Promised: a custom tool's text is decoded from its arguments the same way under any split."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.parsers import CustomInputReader


@st.composite
def arguments_and_cuts(draw):
    text = draw(st.text())
    arguments = json.dumps({"input": text}, ensure_ascii=draw(st.booleans()))
    return text, arguments, draw(st.lists(st.integers(0, len(arguments)), max_size=6))


@given(arguments_and_cuts())
def test_reading_inverts_writing_under_any_split(case):
    text, arguments, cuts = case
    reader = CustomInputReader()
    bounds = [0, *sorted(cuts), len(arguments)]
    pieces = [arguments[a:b] for a, b in itertools.pairwise(bounds)]
    assert "".join(map(reader.feed, pieces)) == text


def test_text_is_handed_out_as_it_comes():
    reader = CustomInputReader()
    pieces = ['{"input"', ': "a', "b\\", "n", "\\ud83c", "\\udf88", '"', "}"]
    assert [reader.feed(piece) for piece in pieces] == ["", "a", "b", "\n", "", "🎈", "", ""]


def test_half_a_surrogate_pair_is_a_replacement_character():
    reader = CustomInputReader()
    assert reader.feed('{"input": "\\ud83cx\\udf88"}') == "\ufffdx\ufffd"
