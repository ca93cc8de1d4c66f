"""Tokens to text: nothing of a stop string leaks, characters stay whole, specials stay out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.events import TokenInfo
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.parsers import OutputStream, StopStringMatcher, StopStrings, Utf8Assembler

SPECIAL_ID = 1000


def run(
    pieces: Sequence[bytes | tuple[int, bytes]], params: SamplingParams, *, ends: bool = False
) -> tuple[list[str], str | None]:
    """(the text of each step and of the end, the matched stop string)."""
    stream = OutputStream(params, {SPECIAL_ID})
    texts = []
    for number, piece in enumerate(pieces):
        token_id, data = piece if isinstance(piece, tuple) else (number, piece)
        last = ends and number == len(pieces) - 1
        step = stream.feed_token(TokenInfo(token_id, data), ends_output=last)
        texts.append(step.text)
        if step.stopped:
            return texts, step.matched
    step = stream.finish()
    return [*texts, step.text], step.matched


def test_no_part_of_a_stop_string_is_shown() -> None:
    params = SamplingParams(stop=("DEFGHIJ",))
    assert run([b"DEF", b"G", b"HI", b"J"], params) == (["", "", "", ""], "DEFGHIJ")
    assert run([b"DEF", b"X"], params) == (["", "DEFX", ""], None)
    assert run([b"DEF"], params) == (["", "DEF"], None)


def test_a_stop_string_can_begin_inside_a_false_start() -> None:
    assert run([b"aab", b"aab", b"aac"], SamplingParams(stop=("aabaac",))) == (
        ["", "aab", ""],
        "aabaac",
    )


def test_the_first_complete_stop_string_wins_and_of_those_the_longest() -> None:
    params = SamplingParams(stop=("bcd", "c", "abc"))
    assert run([b"xabcd"], params) == (["x"], "abc")
    assert run([bytes([char]) for char in b"xabcd"], params)[1] == "abc"


def test_the_stop_string_can_be_kept() -> None:
    params = SamplingParams(stop=("END",), include_stop_str_in_output=True)
    texts, matched = run([b"go E", b"NDmore"], params)
    assert ("".join(texts), matched) == ("go END", "END")


def test_a_special_token_can_be_a_stop_string_and_is_not_shown() -> None:
    pieces: list[bytes | tuple[int, bytes]] = [b"hi", (SPECIAL_ID, b"<|im_end|>"), b"more"]
    assert run(pieces, SamplingParams(stop=("<|im_end|>",))) == (["hi", ""], "<|im_end|>")
    assert run(pieces, SamplingParams(stop=("i<|im_end|>",))) == (["h", ""], "i<|im_end|>")
    assert "".join(run(pieces, SamplingParams(stop=("zzz",)))[0]) == "himore"
    assert "".join(run(pieces, SamplingParams())[0]) == "himore"
    shown = SamplingParams(skip_special_tokens=False)
    assert "".join(run(pieces, shown)[0]) == "hi<|im_end|>more"


def test_the_token_that_ends_the_output_is_not_shown_unless_asked_for() -> None:
    pieces = [b"hi", b"!"]
    assert "".join(run(pieces, SamplingParams(), ends=True)[0]) == "hi"
    kept = SamplingParams(include_stop_str_in_output=True)
    assert "".join(run(pieces, kept, ends=True)[0]) == "hi!"
    special: list[bytes | tuple[int, bytes]] = [b"hi", (SPECIAL_ID, b"<|im_end|>")]
    assert "".join(run(special, kept, ends=True)[0]) == "hi"
    shown = SamplingParams(skip_special_tokens=False)
    assert "".join(run(special, shown, ends=True)[0]) == "hi"


def test_stop_strings_do_not_count_before_min_tokens() -> None:
    params = SamplingParams(stop=("ab",), min_tokens=3)
    assert run([b"ab", b"ab", b"ab"], params) == (["", "ab", "ab"], "ab")
    assert run([b"a", b"b", b"c"], params)[1] is None


def test_characters_stay_whole_over_tokens() -> None:
    texts, _ = run([b"\xf0\x9f", b"\x94", b"\xa5 ok"], SamplingParams())
    assert texts == ["", "", "🔥 ok", ""]


def test_a_cut_character_is_replaced_once_at_the_end() -> None:
    assert "".join(run([b"a\xf0\x9f\x94"], SamplingParams())[0]) == "a\ufffd"
    assert "".join(run([b"a\xf0\x9f", (SPECIAL_ID, b"<s>"), b"b"], SamplingParams())[0]) == (
        "a\ufffdb"
    )


words = st.lists(st.sampled_from("aabé<>"), max_size=14).map("".join)


@settings(max_examples=300, deadline=None)
@given(
    text=words,
    stops=st.lists(st.text("abé<>", min_size=1, max_size=4), max_size=3, unique=True),
    cuts=st.lists(st.integers(0, 30), max_size=6),
    include=st.booleans(),
)
def test_every_cut_gives_the_text_up_to_the_first_stop(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    params = SamplingParams(stop=tuple(stops), include_stop_str_in_output=include)
    ends = [(text.find(stop) + len(stop), -len(stop)) for stop in stops if stop in text]
    expected, matched = text, None
    if ends:
        end, negative_len = min(ends)
        matched = text[end + negative_len : end]
        expected = text[:end] if include else text[: end + negative_len]
    data = text.encode()
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    texts, found = run(pieces, params)
    assert ("".join(texts), found) == (expected, matched)
    shown = ""
    for step in texts:
        shown += step
        assert expected.startswith(shown)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=24), cuts=st.lists(st.integers(0, 24), max_size=5))
def test_any_bytes_cut_anywhere_decode_alike(data: bytes, cuts: list[int]) -> None:
    places = sorted({cut % (len(data) + 1) for cut in cuts})
    assembler = Utf8Assembler()
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    text = "".join(map(assembler.feed, pieces)) + assembler.feed(b"", final=True)
    assert text == data.decode("utf-8", "replace")


def test_a_matcher_holds_only_what_can_become_a_stop_string() -> None:
    matcher = StopStringMatcher(StopStrings(["abcd", "bce"]))
    assert matcher.find("xxabc") is None
    assert matcher.held_len == 3
    assert matcher.find("x") is None
    assert matcher.held_len == 0


def test_stop_strings_that_would_need_too_much_memory_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="8192 characters") as caught:
        SamplingParams(stop=("x" * 5000, "y" * 5000))
    assert caught.value.param == "stop"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopStrings([""])
