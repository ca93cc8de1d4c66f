"""Tool calls: valid for their schema, never lost, merged or cut unseen, in either mode."""

from __future__ import annotations

import itertools
import json

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.runtime.chat.tool_schemas import arguments_schema
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.parsers import TOOL_FORMATS
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import byte_level_encoder, scripted_tokenizer
from ramet.runtime.tokenizer import Tokenizer
from ramet.runtime.tokenizer.kinds import TokenKind

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
TIME = {"type": "function", "function": {"name": "time", "parameters": CITY}}
TOOLS = [WEATHER, TIME]
RAMBLE = Script(["blah "], repeat=True)
AS_SCRIPTED = EngineConfig(forced_tokens=False, seed=0)
"""Every token is drawn, so that a script's own cuts of a text are kept."""


def call(name: str, **arguments) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {json.dumps(arguments)}}}\n</tool_call>'


def collect(chunks):
    """The tool calls of a stream, by index, and every finish reason."""
    calls, reasons = {}, []
    for choice in (choice for chunk in chunks for choice in chunk["choices"]):
        for part in choice["delta"].get("tool_calls", ()):
            if part["index"] not in calls:
                assert set(part) == {"index", "id", "type", "function"}
                calls[part["index"]] = {
                    "id": part["id"],
                    "name": part["function"]["name"],
                    "args": "",
                }
            else:
                assert set(part) == {"index", "function"}
                assert set(part["function"]) == {"arguments"}
            calls[part["index"]]["args"] += part["function"]["arguments"]
        if choice["finish_reason"]:
            reasons.append(choice["finish_reason"])
    return calls, reasons


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
def test_a_forced_call_is_valid_for_any_logits(serve, choice):
    server = serve(RAMBLE)
    fields = {
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": False,
        "max_tokens": 300,
        "temperature": 0,
    }
    whole = server.chat(**fields).json()["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] is None
    (made,) = whole["message"]["tool_calls"]
    assert made["function"]["name"] in (["time"] if choice != "required" else ["time", "weather"])
    jsonschema.validate(json.loads(made["function"]["arguments"]), CITY)
    calls, reasons = collect(server.chat_stream(**fields))
    assert reasons == ["tool_calls"]
    assert calls[0]["args"] == made["function"]["arguments"]
    assert calls[0]["id"] != made["id"]


def test_auto_mode_lets_the_model_answer_in_text(serve, text_of):
    server = serve(["It is ", "sunny."])
    whole = server.chat(tools=TOOLS).json()["choices"][0]
    assert whole["message"]["content"] == "It is sunny."
    assert "tool_calls" not in whole["message"]
    assert whole["finish_reason"] == "stop"
    assert text_of(server.chat_stream(tools=TOOLS)) == "It is sunny."


def test_auto_mode_keeps_arguments_valid_from_the_trigger_on(serve):
    # A wrong tool, a wrong type and an unknown key: the grammar allows none of them.
    server = serve(
        ["Let me see. ", '<tool_call>\n{"name": "', "nothing", '", "arguments": {"x": true']
    )
    answer = server.chat(tools=TOOLS, max_tokens=400).json()["choices"][0]
    made = answer["message"]["tool_calls"][0]["function"]
    assert made["name"] in ("weather", "time")
    jsonschema.validate(json.loads(made["arguments"]), CITY)
    assert answer["message"]["content"] == "Let me see."


def test_parallel_calls_have_indices_of_their_own(serve):
    text = call("weather", city="Rome", days=2) + "\n" + call("time", city="Oslo", days=1)
    pieces = [text[i : i + 5] for i in range(0, len(text), 5)]
    server = serve(pieces, engine_config=AS_SCRIPTED)
    calls, reasons = collect(server.chat_stream(tools=TOOLS))
    assert reasons == ["tool_calls"]
    assert [calls[i]["name"] for i in (0, 1)] == ["weather", "time"]
    assert json.loads(calls[0]["args"]) == {"city": "Rome", "days": 2}
    assert json.loads(calls[1]["args"]) == {"city": "Oslo", "days": 1}
    assert calls[0]["id"] != calls[1]["id"]
    whole = server.chat(tools=TOOLS).json()["choices"][0]["message"]["tool_calls"]
    assert [c["function"]["arguments"] for c in whole] == [calls[0]["args"], calls[1]["args"]]


def test_without_parallel_calls_the_grammar_ends_after_one(serve):
    one = call("weather", city="Rome", days=2)
    other = call("time", city="Oslo", days=1)
    server = serve([one, "\n", other], engine_config=AS_SCRIPTED)
    fields = {"tools": TOOLS, "parallel_tool_calls": False}
    answer = server.chat(**fields).json()
    assert len(answer["choices"][0]["message"]["tool_calls"]) == 1
    assert answer["usage"]["completion_tokens"] == 1  # the script's first piece is the call
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_call_is_completed_within_max_tokens(serve, stream, choice):
    text = call("weather", city="Rome", days=2)
    server = serve([*text], engine_config=AS_SCRIPTED)
    fields = {"tools": TOOLS, "tool_choice": choice, "max_tokens": len(text) - 1}
    if stream:
        calls, (reason,) = collect(server.chat_stream(**fields))
        written = calls[0]["args"]
    else:
        answer = server.chat(**fields).json()["choices"][0]
        reason = answer["finish_reason"]
        written = answer["message"]["tool_calls"][0]["function"]["arguments"]
    assert reason == "tool_calls"
    arguments = json.loads(written)
    assert arguments.keys() == {"city", "days"}
    assert arguments["city"] == "Rome"


def test_logprobs_survive_tool_parsing(serve):
    text = call("weather", city="Rome", days=2)
    server = serve([text[:9], *text[9:]], engine_config=AS_SCRIPTED)
    fields = {"tools": TOOLS, "logprobs": True, "top_logprobs": 2}
    chunks = server.chat_stream(**fields, stream_options={"include_usage": True})
    entries = [
        entry
        for chunk in chunks
        for choice in chunk["choices"]
        for entry in choice.get("logprobs", {"content": []})["content"]
    ]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == text
    whole = server.chat(**fields).json()
    assert len(whole["choices"][0]["logprobs"]["content"]) == len(entries)
    assert len(entries) in (
        whole["usage"]["completion_tokens"],
        whole["usage"]["completion_tokens"] - 1,
    )


TEXT = "Well: " + call("weather", city="Rö⛄", days=2) + "\n" + call("time", city="a}{", days=1)


@given(cuts=st.sets(st.integers(1, len(TEXT.encode()) - 1), max_size=5))
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_calls_are_the_same_however_tokens_cut_them(serve, cuts):
    data = TEXT.encode()
    pieces = [data[a:b] for a, b in itertools.pairwise([0, *sorted(cuts), len(data)])]
    server = serve(pieces, engine_config=AS_SCRIPTED)
    message = server.chat(tools=TOOLS).json()["choices"][0]["message"]
    assert message["content"] == "Well:"
    arguments = [json.loads(c["function"]["arguments"]) for c in message["tool_calls"]]
    assert arguments == [{"city": "Rö⛄", "days": 2}, {"city": "a}{", "days": 1}]
    calls, _ = collect(server.chat_stream(tools=TOOLS))
    assert [json.loads(calls[i]["args"]) for i in (0, 1)] == arguments


def test_an_agents_history_is_understood(serve):
    server = serve(["done"])
    made = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "time", "arguments": '{"city":"Oslo"}'},
    }
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12:00"},
    ]
    answer = server.chat(messages=messages, tools=TOOLS)
    assert answer.json()["choices"][0]["message"]["content"] == "done"


_FORMAT_TYPE = "tools[0].custom.format.type"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": "required"}, "tool_choice"),
        (
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
            "tool_choice",
        ),
        ({"tools": [TIME, TIME]}, "tools[1]"),
        (
            {"tools": [{"type": "function", "function": {"name": "no spaces"}}]},
            "tools[0].function.name",
        ),
        ({"tools": [{"type": "web_serch"}]}, "tools[0].type"),
        ({"tools": [{"type": "custom", "custom": {"name": "x", "format": {}}}]}, _FORMAT_TYPE),
        (
            {
                "tools": [
                    {"type": "function", "function": {"name": "f", "parameters": {"type": "array"}}}
                ]
            },
            "tools[0].function.parameters.type",
        ),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, "tool_choice"),
    ],
)
def test_wrong_tools_are_named(serve, fields, param):
    answer = serve(["ok"]).chat(**fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_tool_without_parameters_takes_none(serve):
    tools = [{"type": "function", "function": {"name": "now"}}]
    answer = serve(RAMBLE).chat(tools=tools, tool_choice="required", max_tokens=200).json()
    made = answer["choices"][0]["message"]["tool_calls"][0]["function"]
    assert (made["name"], json.loads(made["arguments"])) == ("now", {})


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
def test_where_no_tool_may_be_called_no_markup_is_written(serve, name):
    tool_format = TOOL_FORMATS[name]
    script = Script(["Well. ", tool_format.begin, "x"], repeat=True)
    server = serve(script, tool_format=name)
    past = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "a", "type": "function",
         "function": {"name": "weather", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "a", "content": "y"},
    ]  # fmt: skip
    for fields in ({"tools": TOOLS, "tool_choice": "none"}, {"messages": past}):
        choice = server.chat(**fields, max_tokens=30).json()["choices"][0]
        assert "tool_calls" not in choice["message"] or not choice["message"]["tool_calls"]
        assert tool_format.begin not in choice["message"]["content"]


def test_an_answer_in_auto_mode_keeps_its_format(serve):
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"const": "x"}}}
    answer = serve(RAMBLE).chat(tools=TOOLS, response_format=wanted, max_tokens=300).json()
    message = answer["choices"][0]["message"]
    assert message.get("tool_calls") or json.loads(message["content"]) == "x"


def test_two_hundred_tools_are_fine_and_too_many_are_refused(serve):
    room = {"max_context_len": 65536, "num_pages": 8192}
    server = serve(RAMBLE, max_tools=200, model_options=room)
    tools = [
        {"type": "function", "function": {"name": f"tool_{i}", "parameters": CITY}}
        for i in range(201)
    ]
    answer = server.chat(tools=tools[:200], tool_choice="required", max_tokens=200)
    assert answer.json()["choices"][0]["message"]["tool_calls"]
    assert server.chat(tools=tools).json()["error"]["param"] == "tools"


@pytest.mark.parametrize("name", sorted(set(TOOL_FORMATS) - {"harmony"}))
def test_every_format_gives_valid_calls(serve, name):
    server = serve(RAMBLE, tool_format=name)
    fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False}
    answer = server.chat(**fields, max_tokens=400, temperature=0).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    (made,) = answer["message"]["tool_calls"]
    jsonschema.validate(json.loads(made["function"]["arguments"]), CITY)


@pytest.mark.parametrize(
    "unit",
    [
        {"type": "string", "enum": ["C", "F"]},
        {"const": "C"},
        {"enum": ["\n", "F</parameter>"]},
        {"type": "string", "pattern": "^a+$", "maxLength": 3},
        {"type": ["string", "null"], "maxLength": 2},
        {"anyOf": [{"const": 1}, {"const": "1"}]},
        {"type": "string", "format": "date"},
        {},
    ],
)
def test_the_xml_format_gives_valid_calls(serve, unit):
    schema = {
        "type": "object",
        "properties": {
            "unit": unit,
            "days": {"type": "integer", "minimum": 1, "maximum": 9},
        },
        "required": ["unit", "days"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    server = serve(RAMBLE, tool_format="qwen3_xml")
    fields = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    answer = server.chat(**fields, max_tokens=200, temperature=0).json()["choices"][0]
    (made,) = answer["message"]["tool_calls"]
    jsonschema.validate(json.loads(made["function"]["arguments"]), schema)


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"minProperties": 1}, "minProperties"),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "anyOf"),
        ({"required": ["a"]}, "required"),
        ({"properties": {"a>b": {}}}, "properties"),
    ],
)
def test_what_the_xml_format_cannot_hold_is_refused_by_name(serve, schema, place):
    tool = {"type": "function", "function": {"name": "weather", "parameters": schema}}
    error = serve(RAMBLE, tool_format="qwen3_xml").chat(tools=[tool]).json()["error"]
    assert error["param"] == f"tools[0].function.parameters.{place}"
    assert "'weather'" in error["message"]


@pytest.mark.parametrize(
    ("name", "said", "content"),
    [
        ("hermes", call("weather", city="Rome", days=2), None),
        ("llama3_json", '{"name": "weather", "parameters": {"city": "Rome", "days": 2}}', None),
        (
            "llama3_json",
            '<|python_tag|>{"name": "weather", "parameters": {"city": "Rome", "days": 2}}',
            None,
        ),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Rome", "days": 2}}]',
            None,
        ),
        ("mistral_args", '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 2}', None),
        (
            "qwen3_xml",
            "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
            "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
            None,
        ),
        ("generic", "Hm. " + call("weather", city="Rome", days=2), "Hm."),
    ],
)
@pytest.mark.parametrize("parallel", [False, True])
def test_every_format_is_read(serve, name, said, content, parallel):
    tool = json.loads(json.dumps(WEATHER))
    tool["function"]["parameters"]["properties"]["city"].pop("maxLength")
    server = serve([said], tool_format=name, engine_config=AS_SCRIPTED)
    answer = server.chat(tools=[tool], parallel_tool_calls=parallel).json()["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    assert answer["message"]["content"] == content
    (made,) = answer["message"]["tool_calls"]
    assert made["function"]["name"] == "weather"
    assert json.loads(made["function"]["arguments"]) == {"city": "Rome", "days": 2}


def test_arguments_have_no_keys_that_a_plain_schema_does_not_name(serve):
    place = {"type": "object", "properties": {"zip": {"enum": [1, 2]}}, "required": ["zip"]}
    open_place = {**place, "additionalProperties": True}
    schema = {
        "type": "object",
        "properties": {"a": place, "b": {"type": "array", "items": place, "minItems": 1}},
        "required": ["a", "b"],
    }
    assert arguments_schema(schema)["properties"]["a"]["additionalProperties"] is False
    assert arguments_schema(open_place) == open_place
    either = {"type": "object", "properties": {"x": {}}, "anyOf": [{"required": ["x"]}, {}]}
    assert arguments_schema(either) == either
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    server = serve(RAMBLE)
    answer = server.chat(tools=[tool], tool_choice="required", max_tokens=400, temperature=0).json()
    made = json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])
    assert set(made) == {"a", "b"}
    assert set(made["a"]) == {"zip"}
    assert set(made["b"][0]) == {"zip"}


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_tool_whose_schema_cannot_be_honoured_is_named(serve, choice):
    server = serve(["ok"])
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"properties": {"a": a}}}}
        for name, a in (("good", {"type": "string"}), ("wrong", {"type": "strnig"}))
    ]
    for stream in (False, True):
        answer = server.chat(tools=tools, tool_choice=choice, stream=stream)
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["param"] == "tools[1].function.parameters.properties.a.type"
        assert error["code"] == "invalid_grammar"
        assert "'wrong'" in error["message"]
        assert "strnig" in error["message"]
    assert server.num_live() == 0


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_the_allowed_tools_are_called(serve, mode):
    server = serve(call("weather", city="Rome", days=2), engine_config=AS_SCRIPTED)
    only = {"mode": mode, "tools": [{"type": "function", "function": {"name": "time"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": only}
    fields = {"max_tokens": 300, "temperature": 0, "parallel_tool_calls": False}
    answer = server.chat(tools=TOOLS, tool_choice=choice, **fields)
    (made,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert made["function"]["name"] == "time"
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    choice = {
        "type": "allowed_tools",
        "mode": mode,
        "tools": [{"type": "function", "name": "time"}],
    }
    body = {"input": "hi", "tools": tools, "tool_choice": choice, "max_output_tokens": 300}
    body |= {"temperature": 0, "parallel_tool_calls": False}
    answer = server.http.post("/v1/responses", json=body).json()
    assert [i["name"] for i in answer["output"] if i["type"] == "function_call"] == ["time"]
    only["tools"][0]["function"]["name"] = "other"
    wrong = server.chat(tools=TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": only})
    assert wrong.json()["error"]["param"] == "tool_choice"


def test_other_kinds_of_tools_are_refused_by_name(ok_server):
    error = ok_server.chat(tools=[{"type": "costum", "custom": {"name": "x"}}]).json()["error"]
    assert error["param"] == "tools[0].type"
    assert "'costum'" in error["message"]
    error = ok_server.chat(tools=TOOLS, tool_choice={"type": "web_search"}).json()["error"]
    assert error["param"] == "tool_choice.type"


def with_control_token(text, *pieces):
    """The tokenizer of scripts, in which ``text`` is a control token."""
    base = scripted_tokenizer(*pieces)
    tokens = [base.token_bytes(i) for i in range(base.vocab_size)] + [text.encode()]
    kinds = [*base.kinds, TokenKind.CONTROL]
    return Tokenizer(
        tokens=tokens,
        kinds=kinds,
        encoder=byte_level_encoder(tokens, kinds),
        bos_id=base.bos_id,
        eos_id=base.eos_id,
        chat_template=base.chat_template,
    )


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize(
    ("name", "tag", "rest"),
    [
        ("mistral", "[TOOL_CALLS]", '[{"name": "time", "arguments": {"city": "a", "days": 1}}]'),
        ("mistral_args", "[TOOL_CALLS]", 'time[ARGS]{"city": "a", "days": 1}'),
        (
            "llama3_json",
            "<|python_tag|>",
            '{"name": "time", "parameters": {"city": "a", "days": 1}}',
        ),
    ],
)
def test_a_tag_that_is_a_control_token_comes_as_one(serve, name, tag, rest, choice):
    tokenizer = with_control_token(tag, rest)
    script = Script([tokenizer.special_id(tag), rest])
    server = serve(script, tokenizer=tokenizer, tool_format=name, engine_config=AS_SCRIPTED)
    answer = server.chat(tools=TOOLS, tool_choice=choice, return_token_ids=True).json()
    (made,) = answer["choices"][0]["message"]["tool_calls"]
    assert made["function"]["name"] == "time"
    assert answer["choices"][0]["token_ids"][0] == tokenizer.special_id(tag)
    assert answer["usage"]["completion_tokens"] <= 3
    calls, reasons = collect(server.chat_stream(tools=TOOLS, tool_choice=choice))
    assert json.loads(calls[0]["args"]) == {"city": "a", "days": 1}
    assert reasons == ["tool_calls"]
