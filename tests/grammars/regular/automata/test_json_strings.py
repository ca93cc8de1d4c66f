"""Promised: exactly the JSON spellings of a language's texts, with every escape."""

from __future__ import annotations

import json
import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.regular import (
    RegularLimits,
    any_text,
    decoder_table,
    json_string_body,
    literal,
    literals,
    regex_dfa,
)

ANY_BODY = json_string_body(any_text())
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)


def spelled(text: str, rng: random.Random) -> str:
    """One of the many spellings of a text."""
    out = []
    for c in text:
        code = ord(c)
        choices = [json.dumps(c)[1:-1]]
        if code >= 0x20 and c not in '"\\':
            choices.append(c)
        if code < 0x10000:
            choices += [f"\\u{code:04x}", f"\\u{code:04X}"]
        else:
            choices.append(choices[0].replace("\\u", "\0").upper().replace("\0", "\\u"))
        if c == "/":
            choices.append("\\/")
        out.append(rng.choice(choices))
    return "".join(out)


@settings(max_examples=150, deadline=None)
@given(TEXT, TEXT, st.randoms(use_true_random=False))
def test_every_spelling_of_a_member_and_of_nothing_else(
    text: str, other: str, rng: random.Random
) -> None:
    body = json_string_body(literal(text))
    for _ in range(4):
        assert body.accepts(spelled(text, rng).encode())
        assert body.accepts(spelled(other, rng).encode()) == (other == text)
        assert ANY_BODY.accepts(spelled(other, rng).encode())


PIECES = st.sampled_from(
    ["a", '"', "\\", "/", "u", "00", "d83d", "DE00", "41", "g", "\n", "\x1f", "é", "\\u", "\\ud83d"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=7).map("".join))
def test_a_body_is_accepted_exactly_if_json_reads_it(body: str) -> None:
    try:
        text = json.loads(f'"{body}"')
        text.encode()
        # A quote ends the string, and Python reads a lone surrogate, which no UTF-8 text holds.
        valid = isinstance(text, str)
    except (ValueError, UnicodeEncodeError):
        valid = False
    assert ANY_BODY.accepts(body.encode()) == valid


@settings(max_examples=60, deadline=None)
@given(st.lists(TEXT, min_size=1, max_size=4), TEXT, st.randoms(use_true_random=False))
def test_decoding_lazily_is_the_same(words: list[str], text: str, rng: random.Random) -> None:
    dfa, decoder = literals(words), decoder_table()
    body = json_string_body(dfa)
    for candidate in (*words, text):
        spelling = spelled(candidate, rng).encode()
        state, mode = dfa.start, 0
        for byte in spelling:
            output = int(decoder.outputs[mode, byte])
            mode = int(decoder.modes[mode, byte])
            if output >= 0 and state >= 0:
                state = dfa.step(state, bytes((output,)))
            if mode < 0 or state < 0:
                break
        accepted = mode == 0 and state >= 0 and bool(dfa.accepting[state])
        assert accepted == body.accepts(spelling) == (candidate in words)


def test_a_pattern_through_escapes() -> None:
    body = json_string_body(regex_dfa(r"^\d{2}-[a-z]+$", dialect="ecma", search=True))
    assert body.accepts(b"12-ab")
    assert body.accepts(rb"\u0031\u0032\u002d\u0061")
    assert not body.accepts(b"12-AB")
    assert not body.accepts(rb"12-\u0041")


def test_every_mode_leads_back_to_a_border() -> None:
    decoder = decoder_table()
    alive = {0}
    while more := {
        mode
        for mode in range(len(decoder.modes))
        if mode not in alive and alive & set(decoder.modes[mode].tolist())
    }:
        alive |= more
    assert alive == set(range(len(decoder.modes)))
    assert not decoder.modes.flags.writeable
    assert np.all(decoder.modes[:, :0x20] == -1)


def test_lone_surrogates_are_never_spelled() -> None:
    for body in [rb"\ud800", rb"\udfff", rb"\ud800\u0041", rb"\ud800\ud800", rb"\udc00\ud800"]:
        assert not ANY_BODY.accepts(body)
    assert ANY_BODY.accepts(rb"\ud800\udc00")
    assert not re.search("[\ud800-\udfff]", json.loads('"' + rb"\ud800\udc00".decode() + '"'))


def test_limits_end_in_an_error() -> None:
    with pytest.raises(GrammarTooComplexError):
        json_string_body(regex_dfa(".{0,300}"), RegularLimits(max_states=1000))
