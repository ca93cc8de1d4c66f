"""Anthropic's Messages API: its shapes, its order of events, every field honoured or refused."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.events import Finished, TextDelta, Timings, Usage
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.chat.choice import ChatChoice, ShownTokens
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.parsers import REASONING_FORMATS, TOOL_FORMATS, ChatParser
from ramet.runtime.server.anthropic.shapes import AnswerBlocks
from ramet.runtime.testing.scripted_model import Script

HI = [{"role": "user", "content": "hi"}]
WEATHER = {
    "name": "weather",
    "description": "Tells the weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"enum": [1, 2]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
EXACT = {"engine_config": EngineConfig(forced_tokens=False)}
"""Scripts count tokens, so where one tells a call word by word the grammar appends none."""
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city":"Oslo","days":2}}\n</tool_call>'


def ask(server, **fields):
    """A body to messages, with what it must have filled in."""
    return server.http.post("/v1/messages", json=_body(fields))


def stream(server, **fields):
    """The events of a stream: each event's name is its data's type."""
    answer = server.http.post("/v1/messages", json=_body(fields) | {"stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for block in answer.text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {events[-1]['type']}"
    return events


def _body(fields):
    return {"model": "m", "max_tokens": 300, "messages": HI, **fields}


def rebuilt(events):
    """The content blocks that a client makes of a stream."""
    blocks = []
    for event in events:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
            if blocks[-1]["type"] == "tool_use":
                assert blocks[-1]["input"] == {}
                blocks[-1]["input"] = ""
        elif event["type"] == "content_block_delta":
            assert event["index"] == len(blocks) - 1
            delta = event["delta"]
            key = {"input_json_delta": ("input", "partial_json")}.get(
                delta["type"], (delta["type"].removesuffix("_delta"),) * 2
            )
            blocks[-1][key[0]] += delta[key[1]]
        elif event["type"] == "content_block_stop" and blocks[-1]["type"] == "tool_use":
            blocks[-1]["input"] = json.loads(blocks[-1]["input"])
    return blocks


def without_ids(blocks):
    return [{key: value for key, value in block.items() if key != "id"} for block in blocks]


def test_an_answer_has_anthropics_shape(serve):
    answer = ask(serve(["Hello", " world"])).json()
    usage = answer.pop("usage")
    assert answer.pop("id").startswith("msg_")
    assert answer == {
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [{"type": "text", "text": "Hello world"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
    }
    assert usage["output_tokens"] == 3
    assert usage["input_tokens"] > 0
    assert (usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"]) == (0, 0)


def test_cached_tokens_are_counted_apart(serve):
    server = serve(["ok"])
    long = [{"role": "user", "content": "many words " * 40}]
    first, second = (ask(server, messages=long).json()["usage"] for _ in range(2))
    assert first["cache_read_input_tokens"] == 0
    assert second["cache_read_input_tokens"] > 0
    total = second["input_tokens"] + second["cache_read_input_tokens"]
    assert total == first["input_tokens"]
    counted = server.http.post("/v1/messages/count_tokens", json={"model": "m", "messages": long})
    assert counted.json() == {"input_tokens": total}


def test_a_stream_has_the_documented_order(serve):
    events = stream(serve(["Hello", " world"]))
    kinds = [event["type"] for event in events]
    deltas = kinds.count("content_block_delta")
    assert kinds == [
        "message_start",
        "ping",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    start, end = events[0]["message"], events[-2]
    assert start["content"] == []
    assert start["stop_reason"] is None
    assert start["usage"]["output_tokens"] == 0
    assert rebuilt(events) == [{"type": "text", "text": "Hello world"}]
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert end["usage"]["output_tokens"] == 3


@pytest.mark.parametrize(
    ("fields", "reason", "sequence", "text"),
    [
        ({}, "end_turn", None, "one two three"),
        ({"max_tokens": 2}, "max_tokens", None, "one two"),
        ({"stop_sequences": ["nothing", " th"]}, "stop_sequence", " th", "one two"),
    ],
)
def test_why_an_answer_ended(serve, fields, reason, sequence, text):
    server = serve(["one", " two", " three"])
    whole = ask(server, **fields).json()
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, sequence)
    assert whole["content"] == [{"type": "text", "text": text}]
    events = stream(server, **fields)
    assert events[-2]["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    assert rebuilt(events) == whole["content"]


def test_more_tokens_than_the_context_has_mean_as_many_as_it_has(serve):
    server = serve(Script(["x"], repeat=True), model_options={"max_context_len": 64})
    answer = ask(server, max_tokens=16_384).json()
    assert answer["stop_reason"] == "model_context_window_exceeded"
    usage = answer["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == 64
    assert ask(server, max_tokens=5).json()["stop_reason"] == "max_tokens"
    too_long = [{"role": "user", "content": "word " * 100}]
    assert ask(server, messages=too_long).status_code == 400


def test_a_system_prompt_may_be_text_or_blocks(serve):
    server = serve(Script(["seen"], when="system\nBe brief.<|im_end|>"), Script(["not seen"]))
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    for system in ("Be brief.", blocks):
        assert ask(server, system=system).json()["content"][0]["text"] == "seen"
    assert ask(server).json()["content"][0]["text"] == "not seen"


def test_neighbouring_turns_of_one_role_are_one_turn(serve):
    server = serve(Script(["seen"], when="user\nfirst\nsecond<|im_end|>"), Script(["not seen"]))
    turns = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": [{"type": "text", "text": "second"}]},
    ]
    assert ask(server, messages=turns).json()["content"][0]["text"] == "seen"


def test_an_answer_may_be_begun_by_the_client(serve):
    begun = [*HI, {"role": "assistant", "content": "The answer is"}]
    server = serve(Script([" four"], when="assistant\nThe answer is"))
    # The script answers only if the prompt ends inside the assistant's turn.
    assert ask(server, messages=begun, max_tokens=1).json()["content"] == [
        {"type": "text", "text": " four"}
    ]
    schema = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    refused = ask(server, messages=begun, output_config=schema)
    assert refused.status_code == 400


def test_a_format_is_enforced(serve):
    server = serve(Script(["blah "], repeat=True))
    wanted = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    answer = ask(server, output_config={"format": wanted})
    value = json.loads(answer.json()["content"][0]["text"])
    assert value["city"] in ("Oslo", "Rome")
    assert answer.headers["x-ramet-enforced"] == "json_schema"


@pytest.mark.parametrize("choice", ["auto", "any", "tool"])
def test_a_tool_call(serve, choice):
    server = serve(["Let me look.\n", *CALL] if choice == "auto" else [*CALL], **EXACT)
    wanted = {"type": choice} | ({"name": "weather"} if choice == "tool" else {})
    whole = ask(server, tools=[WEATHER], tool_choice=wanted).json()
    events = stream(server, tools=[WEATHER], tool_choice=wanted)
    call = {"type": "tool_use", "name": "weather", "input": {"city": "Oslo", "days": 2}}
    assert without_ids(whole["content"])[-1] == call
    assert whole["stop_reason"] == "tool_use"
    # What the stream's pieces of JSON join to is what the whole answer says.
    assert without_ids(rebuilt(events)) == without_ids(whole["content"])
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    if choice == "auto":
        assert whole["content"][0] == {"type": "text", "text": "Let me look."}


def test_a_call_is_forced_even_if_the_model_only_rambles(serve):
    server = serve(Script(["blah "], repeat=True))
    answer = ask(
        server,
        tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        max_tokens=300,
    ).json()
    assert [block["type"] for block in answer["content"]] == ["tool_use"]
    assert answer["content"][0]["input"]["city"] in ("Oslo", "Rome")
    assert answer["stop_reason"] == "tool_use"


def test_two_calls_are_two_blocks_unless_parallel_use_is_disabled(serve):
    server = serve([*CALL, "\n", *CALL], **EXACT)
    both = rebuilt(stream(server, tools=[WEATHER]))
    assert [block["input"]["city"] for block in both] == ["Oslo", "Oslo"]
    assert both[0]["id"] != both[1]["id"]
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    one = ask(server, tools=[WEATHER], tool_choice=choice).json()
    assert len(one["content"]) == 1
    assert one["stop_reason"] == "tool_use"


def test_a_call_is_completed_within_max_tokens(serve):
    server = serve([*CALL], **EXACT)
    answer = ask(server, tools=[WEATHER], max_tokens=len(CALL) - 1).json()
    assert answer["stop_reason"] == "tool_use"
    assert answer["content"][-1]["input"].keys() >= set(WEATHER["input_schema"]["required"])


def test_a_conversation_with_results_reaches_the_model(serve):
    turns = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "no such city"}],
                    "is_error": True,
                },
                {"type": "text", "text": "Try again."},
            ],
        },
    ]
    expected = (
        '<tool_call>{"name": "weather", "arguments": {"city": "Oslo"}}</tool_call><|im_end|>\n'
        "<|im_start|>tool\nError: no such city<|im_end|>\n"
        "<|im_start|>user\nTry again.<|im_end|>"
    )
    server = serve(Script(["seen"], when=expected), Script(["not seen"]))
    assert ask(server, messages=turns, tools=[WEATHER]).json()["content"][0]["text"] == "seen"
    unknown = json.loads(json.dumps(turns).replace('"tool_use_id": "t1"', '"tool_use_id": "t2"'))
    refused = ask(server, messages=unknown, tools=[WEATHER])
    assert refused.status_code == 400
    assert "messages[2].content[0]" in refused.json()["error"]["message"]
    assert ask(server, messages=turns[:2], tools=[WEATHER]).status_code == 400


THINKS = "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"


@pytest.fixture
def thinker(serve, monkeypatch):
    """A server whose model's template has reasoning that can be turned off."""
    from ramet.runtime.testing import scripted_tokenizer as scripted

    monkeypatch.setattr(
        scripted,
        "CHAT_TEMPLATE",
        scripted.CHAT_TEMPLATE.replace(
            "assistant\\n' }}{% endif %}", "assistant\\n' }}" + THINKS + "{% endif %}"
        ),
    )
    return serve(
        Script(["Four."], when="<think></think>"),
        Script(["Cut."], when="Two and two\n</think>"),
        Script(
            ["Two and two", " make four", "</think>", "\n", "Four."],
            when="assistant\n<think>\n",
        ),
        Script(["<think>", "Two and two", " make four", "</think>", "\n", "Four."]),
    )


def test_thinking_is_a_block_of_its_own(thinker):
    fields = {"thinking": {"type": "adaptive"}}
    whole = ask(thinker, **fields).json()
    assert whole["content"] == [
        {"type": "thinking", "thinking": "Two and two make four", "signature": ""},
        {"type": "text", "text": "Four."},
    ]
    assert rebuilt(stream(thinker, **fields)) == whole["content"]
    off = ask(thinker, thinking={"type": "disabled"}).json()
    assert off["content"] == [{"type": "text", "text": "Four."}]
    again = [*HI, {"role": "assistant", "content": whole["content"]}, *HI]
    assert ask(thinker, messages=again).status_code == 200


@pytest.mark.parametrize("kind", ["adaptive", "disabled"])
@pytest.mark.parametrize("streamed", [False, True])
def test_reasoning_is_free_and_the_answer_is_held_to_its_format(thinker, kind, streamed):
    wanted = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    fields = {"thinking": {"type": kind}, "output_config": {"format": wanted}}
    content = (
        rebuilt(stream(thinker, **fields)) if streamed else ask(thinker, **fields).json()["content"]
    )
    assert [block["type"] for block in content] == ["thinking"] * (kind == "adaptive") + ["text"]
    assert json.loads(content[-1]["text"])["city"] in ("Oslo", "Rome")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("budget", "thought", "text"), [(1, "", "Cut."), (50, " make four", "Four.")]
)
def test_reasoning_ends_at_its_budget(thinker, streamed, budget, thought, text):
    fields = {"thinking": {"type": "enabled", "budget_tokens": budget}}
    if streamed:
        events = stream(thinker, **fields)
        content, usage = rebuilt(events), events[-2]["usage"]
        assert events[-2]["delta"]["stop_reason"] == "end_turn"
    else:
        answer = ask(thinker, **fields).json()
        content, usage = answer["content"], answer["usage"]
        assert answer["stop_reason"] == "end_turn"
    assert content == [
        {"type": "thinking", "thinking": "Two and two" + thought, "signature": ""},
        {"type": "text", "text": text},
    ]
    # The prompt counts once, and what was added at the cut is counted as output.
    alone = ask(thinker, thinking={"type": "adaptive"}).json()["usage"]
    prompt = ("input_tokens", "cache_read_input_tokens")
    assert sum(usage[each] for each in prompt) == sum(alone[each] for each in prompt)
    assert usage["output_tokens"] >= 4


def test_an_answer_behind_bounded_reasoning_is_held_to_its_format(thinker):
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1}}
    wanted = {"type": "json_schema", "schema": WEATHER["input_schema"]}
    content = ask(thinker, **thinking, output_config={"format": wanted}).json()["content"]
    assert [block["type"] for block in content] == ["thinking", "text"]
    assert json.loads(content[1]["text"])["city"] in ("Oslo", "Rome")
    called = ask(thinker, **thinking, tools=[WEATHER], tool_choice={"type": "any"}).json()
    assert [block["type"] for block in called["content"]] == ["thinking", "tool_use"]
    assert called["stop_reason"] == "tool_use"


def test_a_stop_sequence_in_bounded_reasoning_ends_the_answer(thinker):
    thinking = {"type": "enabled", "budget_tokens": 50}
    answer = ask(thinker, thinking=thinking, stop_sequences=["make"]).json()
    assert (answer["stop_reason"], answer["stop_sequence"]) == ("stop_sequence", "make")
    assert answer["content"] == [{"type": "thinking", "thinking": "Two and two", "signature": ""}]


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": {"type": "enabled", "budget_tokens": 300}},
        {"thinking": {"type": "adaptive", "budget_tokens": 10}},
        {"thinking": {"type": "enabled", "budget_tokens": 0}},
        {"thinking": {"type": "enabled", "budget_tokens": 2}, "max_tokens": 3},
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(thinker, fields):
    answer = ask(thinker, **fields)
    assert answer.status_code == 400
    assert "_tokens" in answer.json()["error"]["message"]


def test_a_client_that_leaves_bounded_reasoning_takes_its_request_with_it(serve, wait_until):
    server = serve(
        Script(["x"], repeat=True), reasoning_format="think", model_options={"step_delay_s": 0.01}
    )
    fields = {"thinking": {"type": "enabled", "budget_tokens": 4}, "max_tokens": 4000}
    with server.http.stream("POST", "/v1/messages", json=_body(fields | {"stream": True})) as sent:
        for piece in sent.iter_text():
            if "text_delta" in piece:  # the second request runs
                break
    wait_until(lambda: server.num_live() == 0, 5.0)


USE = {"type": "tool_use", "id": "1", "name": "f", "input": {}}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"stop_sequence": ["a"]}, "did you mean stop_sequences"),
        ({"max_token": 1}, "did you mean max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [USE]}]}, "tool_use"),
        ({"system": [{"type": "image"}]}, "image"),
        ({"tools": [{"type": "web_serch_20250305", "name": "web_search"}]}, "web_serch_20250305"),
        ({"tool_choice": {"type": "tool"}}, "name"),
        ({"tool_choice": {"type": "tool", "name": "nothing"}}, "nothing"),
        ({"containr": "c"}, "containr"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"temperature": "hot"}, "temperature"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "type"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_not_honoured_is_refused_by_name(serve, fields, says, streamed):
    server = serve(["fine"])
    answer = ask(server, stream=streamed, **fields)
    assert answer.status_code == 400
    body = answer.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert says in body["error"]["message"]
    assert ask(server).json()["content"][0]["text"] == "fine"


def test_an_unknown_model_is_not_found(serve):
    answer = ask(serve(["x"]), model="other")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


def test_the_key_may_be_sent_as_anthropics_clients_do(serve, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"tenants": [{"name": "a", "keys": ["sk-right"]}]}))
    server = serve(["x"], api_keys_file=keys)
    refused = ask(server)
    assert (refused.status_code, refused.json()["error"]["type"]) == (401, "authentication_error")
    headers = {"x-api-key": "sk-right", "anthropic-version": "2023-06-01"}
    answer = server.http.post("/v1/messages", json=_body({}), headers=headers)
    assert answer.status_code == 200


def test_a_failure_behind_the_first_event_is_an_error_event(serve):
    def fail_at_four(batch, steps=[]):  # noqa: B006
        steps.append(1)
        if len(steps) == 4:
            raise RuntimeError("a fault")

    server = serve(Script(["x"], repeat=True), model_options={"before_step": fail_at_four})
    events = stream(server)
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] in ("api_error", "overloaded_error")
    assert "message_stop" not in [event["type"] for event in events]


TEXT = f"<think>First,\n look ☃.</think>\n\nLet me look.\n{CALL}\n{CALL}"


@given(cuts=st.sets(st.integers(1, len(TEXT) - 1), max_size=12))
@settings(max_examples=60, deadline=None)
def test_events_join_to_the_whole_answer_however_the_text_is_cut(cuts):
    parser = ChatParser(reasoning=REASONING_FORMATS["think"], tools=TOOL_FORMATS["hermes"])
    choice = ChatChoice(parser, ShownTokens(SamplingParams(), frozenset()))
    blocks = AnswerBlocks(choice.message)
    events = []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(TEXT)]):
        events += blocks.feed(choice.feed([TextDelta(TEXT[start:end])])[0])
    events += blocks.feed(choice.feed([Finished("stop", Usage(), Timings())])[0])
    events += blocks.end()
    assert rebuilt(events) == blocks.blocks
    call = {"type": "tool_use", "name": "weather", "input": {"city": "Oslo", "days": 2}}
    assert without_ids(blocks.blocks) == [
        {"type": "thinking", "thinking": "First,\n look ☃.", "signature": ""},
        {"type": "text", "text": "Let me look."},
        call,
        call,
    ]
    kinds = [event["type"] for event in events]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 4
