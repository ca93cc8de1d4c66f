"""A model that speaks in channels: reasoning, answers and calls, held to what was asked."""

from __future__ import annotations

import itertools
import json

import jsonschema
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.testing import server as testing
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import byte_level_encoder
from ramet.runtime.tokenizer import Tokenizer
from ramet.runtime.tokenizer.kinds import TokenKind

MARKERS = (
    *("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>"),
    *("<|call|>", "<|return|>", "<|endoftext|>"),
)
TEMPLATE = """\
{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') }}
{{- ' ' + strftime_now('%Y') + '<|end|>' }}
{%- if tools %}
{{- '<|start|>developer<|message|>namespace functions {' }}
{%- for tool in tools %}{{- tool.function | tojson }}{% endfor %}{{- '}<|end|>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.thinking %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}
{%- endif %}
{%- for call in message.tool_calls or [] %}
{{- '<|start|>assistant<|channel|>commentary to=functions.' + call.function.name }}
{{- ' <|constrain|>json<|message|>' + call.function.arguments | tojson + '<|call|>' }}
{%- endfor %}
{%- if message.content %}
{{- '<|start|>' + message.role }}
{%- if message.role == 'assistant' %}{{- '<|channel|>final' }}{% endif %}
{{- '<|message|>' + message.content }}
{%- if not (loop.last and message.role == 'assistant') %}{{- '<|end|>' }}{% endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{% endif %}
"""
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
TIME = {"type": "function", "function": {"name": "time", "parameters": CITY}}
TOOLS = [WEATHER, TIME]
AS_SCRIPTED = EngineConfig(forced_tokens=False, seed=0)
THOUGHT = ["<|channel|>", "analysis", "<|message|>", "Hm.", "<|end|>", "<|start|>", "assistant"]
FINAL = ["<|channel|>", "final", "<|message|>"]
HEAD = ["<|channel|>", "commentary", " to=functions.weather ", "<|constrain|>", "json",
        "<|message|>"]  # fmt: skip


def harmony_tokenizer(*pieces: str | bytes) -> Tokenizer:
    """All bytes, harmony's control tokens, and each of ``pieces`` as one token."""
    tokens = [bytes([byte]) for byte in range(256)] + [text.encode() for text in MARKERS]
    for piece in pieces:
        data = piece if isinstance(piece, bytes) else piece.encode()
        if data not in tokens:
            tokens.append(data)
    kinds = [TokenKind.NORMAL] * len(tokens)
    kinds[256 : 256 + len(MARKERS)] = [TokenKind.CONTROL] * len(MARKERS)
    ids = {text: 256 + index for index, text in enumerate(MARKERS)}
    return Tokenizer(
        tokens=tokens,
        kinds=kinds,
        encoder=byte_level_encoder(tokens, kinds),
        eos_id=ids["<|return|>"],
        eos_ids={ids["<|call|>"], ids["<|endoftext|>"]},
        chat_template=TEMPLATE,
    )


def start(serve, *pieces, **options):
    return serve(
        Script(pieces), tokenizer=harmony_tokenizer(*pieces), engine_config=AS_SCRIPTED, **options
    )


def both(server, **fields):
    """A chat's message and finish reason, whole and streamed, which must agree."""
    whole = server.chat(**fields).json()["choices"][0]
    message = {"content": "", "reasoning_content": "", "calls": {}}
    reasons = []
    for choice in (c for chunk in server.chat_stream(**fields) for c in chunk["choices"]):
        delta = choice["delta"]
        for key in ("content", "reasoning_content"):
            message[key] += delta.get(key, "")
        for part in delta.get("tool_calls", ()):
            made = message["calls"].setdefault(part["index"], {"name": "", "arguments": ""})
            made["name"] += part["function"].get("name", "")
            made["arguments"] += part["function"]["arguments"]
        if choice["finish_reason"]:
            reasons.append(choice["finish_reason"])
    said = whole["message"]
    assert reasons == [whole["finish_reason"]]
    assert message["content"] == (said["content"] or "")
    assert message["reasoning_content"] == said.get("reasoning_content", "")
    assert [m["arguments"] for m in message["calls"].values()] == [
        c["function"]["arguments"] for c in said.get("tool_calls", ())
    ]
    return said, whole["finish_reason"]


def test_channels_are_distinguished(serve):
    server = start(serve, *THOUGHT, *FINAL, "It is ", "sunny.")
    said, reason = both(server)
    assert said["content"] == "It is sunny."
    assert said["reasoning_content"] == "Hm."
    assert reason == "stop"


def test_a_call_is_a_message_to_a_function(serve):
    server = start(serve, *THOUGHT, *HEAD, '{"city": "Oslo", ', '"days": 2}', "<|call|>")
    said, reason = both(server, tools=TOOLS)
    (made,) = said["tool_calls"]
    assert made["function"] == {"name": "weather", "arguments": '{"city": "Oslo", "days": 2}'}
    assert said["reasoning_content"] == "Hm."
    assert said["content"] is None
    assert reason == "tool_calls"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_forced_call_is_valid_for_any_logits(serve, choice, parallel):
    server = start(serve, *THOUGHT, *FINAL, "no")
    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": parallel}
    said, reason = both(server, **fields, max_tokens=400, temperature=0)
    (made,) = said["tool_calls"]
    assert made["function"]["name"] in (["time"] if choice != "required" else ["time", "weather"])
    jsonschema.validate(json.loads(made["function"]["arguments"]), CITY)
    assert said["reasoning_content"] == "Hm."
    assert reason == "tool_calls"


def test_auto_mode_keeps_arguments_valid_and_ends_behind_one_call(serve):
    wrong = [*HEAD[:2], " to=functions.", "nothing", *HEAD[3:], '{"x": true}', "<|call|>"]
    server = start(serve, *wrong, "<|start|>", "assistant", *HEAD)
    said, _ = both(server, tools=TOOLS, max_tokens=400, temperature=0)
    (made,) = said["tool_calls"]
    assert made["function"]["name"] in ("weather", "time")
    jsonschema.validate(json.loads(made["function"]["arguments"]), CITY)


def test_an_answer_is_held_to_its_schema_behind_free_reasoning(serve):
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}}
    server = start(serve, *THOUGHT, *FINAL, "It is sunny.")
    said, reason = both(server, response_format=form, max_tokens=300, temperature=0)
    jsonschema.validate(json.loads(said["content"]), CITY)
    assert said["reasoning_content"] == "Hm."
    assert reason == "stop"


def test_a_preamble_is_content(serve):
    preamble = ["<|channel|>", "commentary", "<|message|>", "I look.", *THOUGHT[4:]]
    server = start(serve, *preamble, *HEAD, '{"city": "Oslo", "days": 2}', "<|call|>")
    said, reason = both(server, tools=TOOLS)
    assert said["content"] == "I look."
    assert len(said["tool_calls"]) == 1
    assert reason == "tool_calls"


def test_a_call_that_has_no_room_is_not_begun(serve):
    server = start(serve, *HEAD, '{"city": ', *'"Oslo", "days": 2}')
    said, reason = both(server, tools=TOOLS, max_tokens=9)
    assert reason == "stop"
    assert "tool_calls" not in said


def test_reasoning_has_a_budget(serve):
    endless = ["<|channel|>", "analysis", "<|message|>", *["hm "] * 300]
    server = start(serve, *endless)
    form = {"type": "json_schema", "json_schema": {"name": "c", "schema": CITY}}
    fields = {"thinking_token_budget": 5, "max_tokens": 300, "temperature": 0}
    said, _ = both(server, **fields, response_format=form)
    assert said["reasoning_content"].count("hm") <= 5
    jsonschema.validate(json.loads(said["content"]), CITY)


def test_an_agents_history_is_printed_in_channels(serve):
    server = start(serve, *FINAL, "done")
    made = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    ]
    assert server.chat(messages=messages, tools=TOOLS).json()["choices"][0]["message"][
        "content"
    ] == ("done")
    tokens = server.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    prompt = server.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert "<|channel|>analysis<|message|>Hm.<|end|>" in prompt


def test_a_begun_answer_goes_on_inside_it(serve):
    server = start(serve, "the sun.")
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "It is "}]
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    said, _ = both(server, messages=messages, **fields)
    assert said["content"] == "the sun."
    begun = server.chat(messages=messages, **fields, tools=TOOLS, tool_choice="required")
    assert begun.json()["error"]["param"] == "tool_choice"


def test_the_other_apis_speak_it_too(serve):
    server = start(serve, *THOUGHT, *HEAD, '{"city": "Oslo", "days": 2}', "<|call|>")
    tool = {"name": "weather", "input_schema": CITY}
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 200, "tools": [tool]}
    answer = server.http.post("/v1/messages", json=body).json()
    assert [block["type"] for block in answer["content"]] == ["thinking", "tool_use"]
    assert answer["content"][1]["input"] == {"city": "Oslo", "days": 2}
    body = {"input": "hi", "tools": [{"type": "function", "name": "weather", "parameters": CITY}]}
    answer = server.http.post("/v1/responses", json=body).json()
    assert [item["type"] for item in answer["output"]] == ["reasoning", "function_call"]


def test_formats_that_do_not_go_together_are_refused():
    for options in (
        {"tool_format": "harmony", "reasoning_format": "think"},
        {"tool_format": "hermes", "reasoning_format": "harmony"},
    ):
        with (
            pytest.raises(InvalidParameterError, match="be combined"),
            testing.scripted_server([["x"]], **options),
        ):
            pass


def test_either_option_names_both_formats(serve):
    for options in ({"tool_format": "harmony"}, {"reasoning_format": "harmony"}):
        pieces = ["<|channel|>final<|message|>hi"]
        server = serve(pieces, engine_config=AS_SCRIPTED, **options)
        assert server.chat().json()["choices"][0]["message"]["content"] == "hi"


WHOLE = '{"city": "Rö<|end|>", "days": 2}'


@given(cuts=st.sets(st.integers(1, len(WHOLE.encode()) - 1), max_size=5))
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_calls_are_the_same_however_tokens_cut_them(serve, cuts):
    data = WHOLE.encode()
    pieces = [data[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(data)])]
    assume(b"<|end|>" not in pieces)  # for the script, that is the control token
    server = start(serve, *THOUGHT, *HEAD, *pieces)
    said, reason = both(server, tools=TOOLS)
    assert said["tool_calls"][0]["function"]["arguments"] == WHOLE
    assert reason == "tool_calls"


def test_several_calls_of_one_message_are_printed_one_by_one(serve):
    server = start(serve, *FINAL, "done")
    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": f"f{i}", "arguments": "{}"}}
        for i in (1, 2)
    ]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "user", "content": "and?"},
    ]
    tokens = server.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    prompt = server.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    places = [prompt.index(word) for word in ("functions.f1", "one", "functions.f2", "two", "and?")]
    assert places == sorted(places)
