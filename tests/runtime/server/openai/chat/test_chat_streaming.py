"""What streams promise: exact text for any tokens, well-formed chunks, usage only when asked."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.runtime.testing.scripted_model import Script

ANSWER = {"DEFGHIJ": ["DEF", "G", "HI", "J", "never"], "DEFX": ["DEF", "X"]}


def test_no_part_of_a_stop_string_is_streamed(serve, text_of):
    server = serve(ANSWER["DEFGHIJ"])
    chunks = server.stream("/v1/completions", prompt="ABC", stop=["DEFGHIJ"])
    assert text_of(chunks) == ""
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"][0]["stop_reason"] == "DEFGHIJ"
    whole = server.complete(prompt="ABC", stop=["DEFGHIJ"]).json()["choices"][0]
    assert (whole["text"], whole["finish_reason"]) == ("", "stop")


def test_text_that_only_began_like_a_stop_string_is_flushed(serve, text_of):
    server = serve(ANSWER["DEFX"])
    assert text_of(server.stream("/v1/completions", prompt="ABC", stop=["DEFGHIJ"])) == "DEFX"
    assert text_of(server.chat_stream(stop="DEFGHIJ")) == "DEFX"


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_may_be_a_special_token(serve, text_of, include):
    server = serve(["a", "<|reserved|>", "b"])
    fields = {"stop": ["<|reserved|>"], "include_stop_str_in_output": include}
    expected = "a<|reserved|>" if include else "a"
    message = server.chat(**fields).json()["choices"][0]
    assert (message["message"]["content"], message["finish_reason"]) == (expected, "stop")
    assert text_of(server.chat_stream(**fields)) == expected


def test_characters_are_never_broken(serve, text_of):
    server = serve([b"\xf0\x9f", b"\x94", b"\xa5 ok"])
    chunks = server.chat_stream(logprobs=True)
    assert text_of(chunks) == "🔥 ok"
    assert not any("�" in choice["delta"].get("content", "") for choice in _choices(chunks))
    entries = [
        e for choice in _choices(chunks) for e in choice.get("logprobs", {"content": []})["content"]
    ]
    assert bytes(byte for entry in entries for byte in entry["bytes"])[: len("🔥 ok".encode())] == (
        "🔥 ok".encode()
    )


def test_a_character_cut_by_the_token_limit_is_replaced_once(serve, text_of):
    server = serve([b"a\xf0\x9f", b"\x94", b"\xa5"])
    chunks = server.chat_stream(max_tokens=2)
    assert text_of(chunks) in ("a", "a�")
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    assert server.chat(max_tokens=2).json()["choices"][0]["message"]["content"] == text_of(chunks)


def test_the_first_delta_has_the_role_and_none_has_a_null(serve):
    chunks = serve(["a", "b"]).chat_stream()
    deltas = [choice["delta"] for choice in _choices(chunks)]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert all("role" not in delta for delta in deltas[1:])
    assert "null" not in json.dumps(deltas)
    assert deltas[-1] == {}
    reasons = [choice["finish_reason"] for choice in _choices(chunks)]
    assert reasons == [None] * (len(reasons) - 1) + ["stop"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"include_usage": True}])
def test_usage_comes_only_when_asked(serve, path, options):
    prompt = (
        {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hi"}
    )
    chunks = serve(["a", "b"]).stream(path, **prompt, stream_options=options)
    with_usage = [chunk for chunk in chunks if "usage" in chunk]
    if options == {"include_usage": True}:
        assert with_usage == [chunks[-1]]
        assert chunks[-1]["choices"] == []
        usage = chunks[-1]["usage"]
        assert usage["completion_tokens"] == 3  # end-of-text is one
        assert usage["total_tokens"] == usage["prompt_tokens"] + 3
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    else:
        assert with_usage == []


def test_stream_options_without_stream_are_refused(serve):
    answer = serve(["a"]).chat(stream_options={"include_usage": True})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stream_options"


def test_usage_so_far_is_on_every_chunk_when_asked(serve):
    chunks = serve(["a", "b"]).chat_stream(stream_options={"continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks if "usage" in chunk]
    assert counts == sorted(counts)
    assert counts[-1] >= 2


def test_choices_are_independent_and_the_prompt_counts_once(serve, text_of):
    server = serve(Script(["one", " two"]))
    chunks = server.chat_stream(n=3, stream_options={"include_usage": True})
    for index in range(3):
        assert text_of(chunks, index) == "one two"
        mine = [choice for choice in _choices(chunks) if choice["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert [choice["finish_reason"] for choice in mine].count("stop") == 1
    usage = chunks[-1]["usage"]
    alone = server.chat().json()["usage"]
    assert usage["prompt_tokens"] == alone["prompt_tokens"]
    assert usage["completion_tokens"] == 3 * alone["completion_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
    assert {choice["index"] for choice in server.chat(n=3).json()["choices"]} == {0, 1, 2}


def test_logprobs_are_one_a_token_in_order(serve):
    server = serve(["a", b"\xc3", b"\xa9", "c"])
    chunks = server.chat_stream(logprobs=True, top_logprobs=2)
    entries = [
        e
        for choice in _choices(chunks)
        if "logprobs" in choice
        for e in choice["logprobs"]["content"]
    ]
    raw = [bytes(entry["bytes"]) for entry in entries]
    assert raw[:4] == [b"a", b"\xc3", b"\xa9", b"c"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
    assert all(entry["logprob"] <= 0 for entry in entries)
    whole = server.chat(logprobs=True, top_logprobs=2).json()["choices"][0]["logprobs"]["content"]
    assert [entry["bytes"] for entry in whole] == [entry["bytes"] for entry in entries]


TEXT = "one {é🔥} stop two ☃"


@given(cuts=st.sets(st.integers(1, len(TEXT.encode()) - 1), max_size=6))
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_streaming_and_whole_answers_agree_however_tokens_cut_the_text(serve, text_of, cuts):
    data = TEXT.encode()
    borders = [0, *sorted(cuts), len(data)]
    server = serve([data[a:b] for a, b in itertools.pairwise(borders)])
    for stop, expected in ((None, TEXT), ("stop", "one {é🔥} "), ("two ☃", "one {é🔥} stop ")):
        assert text_of(server.chat_stream(stop=stop)) == expected
        assert server.chat(stop=stop).json()["choices"][0]["message"]["content"] == expected


def _choices(chunks):
    return [choice for chunk in chunks for choice in chunk["choices"]]
