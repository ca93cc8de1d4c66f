"""OpenAI's Responses API: items, stored conversations, events in their documented order."""

from __future__ import annotations

import asyncio
import itertools
import json

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import NotFoundError
from ramet.runtime.api.events import Finished, TextDelta, Timings, Usage
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.chat.choice import ChatChoice, ShownTokens
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.parsers import REASONING_FORMATS, TOOL_FORMATS, ChatParser
from ramet.runtime.server.openai.responses.output import OutputItems
from ramet.runtime.server.openai.responses.store import ResponseStore, StoredResponse
from ramet.runtime.testing import scripted_tokenizer as scripted
from ramet.runtime.testing.scripted_model import Script

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"enum": [1, 2]}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city":"Oslo","days":2}}\n</tool_call>'
EXACT = {"engine_config": EngineConfig(forced_tokens=False)}
"""Scripts count tokens, so where one tells a call word by word the grammar appends none."""


def ask(server, given="hi", **fields):
    """A body to responses."""
    return server.http.post("/v1/responses", json={"model": "m", "input": given, **fields})


def stream(server, given="hi", **fields):
    """The events of a stream: names are types, and sequence numbers count from 0."""
    answer = ask(server, given, stream=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = []
    for number, block in enumerate(answer.text.split("\n\n")[:-1]):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event.pop("sequence_number") == number
        events.append(event)
    return events


def text_of_output(response):
    return "".join(
        part["text"]
        for item in response["output"]
        if item["type"] == "message"
        for part in item["content"]
    )


def without_ids(items):
    return [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]


def rebuilt(events):
    """The output items that a client makes of a stream; each event must find its item open."""
    items = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            items.append(json.loads(json.dumps(event["item"])))
            assert items[-1]["status"] == "in_progress"
            continue
        if "output_index" not in event:
            continue
        assert event["output_index"] == len(items) - 1
        item = items[-1]
        if kind == "output_item.done":
            assert event["item"] == item | {"status": event["item"]["status"]}
            items[-1] = event["item"]
            continue
        assert event["item_id"] == item["id"]
        match kind:
            case "content_part.added":
                assert event["content_index"] == len(item["content"])
                item["content"].append(event["part"])
            case "output_text.delta":
                item["content"][-1]["text"] += event["delta"]
                item["content"][-1]["logprobs"] += event["logprobs"]
            case "reasoning_text.delta":
                item["content"][-1]["text"] += event["delta"]
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == item["content"][-1]["text"]
            case "content_part.done":
                assert event["part"] == item["content"][-1]
            case "function_call_arguments.delta":
                item["arguments"] += event["delta"]
            case "function_call_arguments.done":
                assert event["arguments"] == item["arguments"]
    return items


def test_a_response_has_openais_shape(serve):
    server = serve(["Hello", " world"])
    response = ask(server, instructions="Be brief.", metadata={"a": "b"}, temperature=0.5).json()
    assert response["id"].startswith("resp_")
    (item,) = response["output"]
    assert item["id"].startswith("msg_")
    assert (item["type"], item["role"], item["status"]) == ("message", "assistant", "completed")
    assert item["content"] == [
        {"type": "output_text", "text": "Hello world", "annotations": [], "logprobs": []}
    ]
    assert (response["object"], response["status"]) == ("response", "completed")
    assert response["error"] is None
    assert response["metadata"] == {"a": "b"}
    assert response["instructions"] == "Be brief."
    assert (response["temperature"], response["top_p"]) == (0.5, 1.0)
    usage = response["usage"]
    assert usage["output_tokens"] == 3
    assert usage["total_tokens"] == usage["input_tokens"] + 3
    assert usage["input_tokens_details"]["cached_tokens"] == 0


def test_a_stream_has_the_documented_order(serve):
    events = stream(serve(["Hello", " world"]))
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * kinds.count("output_text.delta"),
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["status"] == "in_progress"
    assert events[0]["response"]["output"] == []
    done = events[-1]["response"]
    assert done["status"] == "completed"
    assert done["output"] == rebuilt(events)
    assert text_of_output(done) == "Hello world"


def test_an_answer_that_is_cut_is_incomplete(serve):
    server = serve(["one", " two", " three"])
    response = ask(server, max_output_tokens=2).json()
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["output"][0]["status"] == "incomplete"
    assert text_of_output(response) == "one two"
    events = stream(server, max_output_tokens=2)
    assert events[-1]["type"] == "response.incomplete"
    assert without_ids(rebuilt(events)) == without_ids(response["output"])


def test_a_conversation_goes_on_from_a_stored_response(serve):
    expected = "user\nhi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nand?"
    server = serve(
        Script(["with all"], when=expected), Script(["Hello"], when="user\nhi"), Script(["lost"])
    )
    for streamed in (False, True):
        if streamed:
            first = stream(server, instructions="Be brief.")[-1]["response"]
        else:
            first = ask(server, instructions="Be brief.").json()
        second = ask(server, "and?", previous_response_id=first["id"]).json()
        assert text_of_output(second) == "with all"
        assert second["previous_response_id"] == first["id"]
        # Instructions are not carried over.
        assert second["usage"]["input_tokens"] < first["usage"]["input_tokens"] + 60


def test_stored_responses_can_be_read_and_deleted(serve):
    server = serve(["Hello"])
    response = ask(server).json()
    path = f"/v1/responses/{response['id']}"
    assert server.http.get(path).json() == response
    assert server.http.get(path, params={"stream": "true"}).status_code == 400
    assert server.http.delete(path).json() == {
        "id": response["id"],
        "object": "response",
        "deleted": True,
    }
    assert server.http.get(path).status_code == 404
    gone = ask(server, previous_response_id=response["id"])
    assert gone.status_code == 404
    assert gone.json()["error"]["param"] == "previous_response_id"


def test_a_response_is_not_stored_if_its_sender_says_so(serve):
    server = serve(["Hello"])
    response = ask(server, store=False).json()
    assert response["store"] is False
    assert server.http.get(f"/v1/responses/{response['id']}").status_code == 404


def test_the_store_is_bounded_and_says_what_it_did_not_keep(serve):
    server = serve(["Hello"], max_stored_responses=2)
    ids = [ask(server).json()["id"] for _ in range(3)]
    found = [server.http.get(f"/v1/responses/{each}").status_code for each in ids]
    assert found == [404, 200, 200]
    tiny = serve(["Hello"], max_stored_response_bytes=100)
    assert ask(tiny).json()["store"] is False


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 400), st.booleans())))
@settings(max_examples=60, deadline=None)
def test_the_store_never_grows_over_its_bounds(steps):
    store = ResponseStore(max_responses=4, max_bytes=1000)
    for name, size, delete in steps:
        if delete:
            try:
                store.delete(name)
            except NotFoundError:
                continue
            with pytest.raises(NotFoundError):
                store.get(name)
        else:
            store.put(StoredResponse({"id": name, "text": "x" * size}, []))
        assert len(store) <= 4
        assert 0 <= store.num_bytes <= 1000
    for name in "abcdef":
        try:
            store.delete(name)
        except NotFoundError:
            continue
    assert (len(store), store.num_bytes) == (0, 0)


def test_a_tenant_does_not_see_anothers_responses(serve, tmp_path):
    keys = tmp_path / "keys.json"
    tenants = [{"name": name, "keys": [f"sk-{name}"]} for name in ("a", "b")]
    keys.write_text(json.dumps({"tenants": tenants}))
    server = serve(["Hello"], api_keys_file=keys)

    def as_tenant(name, method, path, **options):
        headers = {"authorization": f"Bearer sk-{name}"}
        return server.http.request(method, path, headers=headers, **options)

    body = {"model": "m", "input": "hi"}
    response = as_tenant("a", "POST", "/v1/responses", json=body).json()
    path = f"/v1/responses/{response['id']}"
    assert as_tenant("b", "GET", path).status_code == 404
    assert as_tenant("b", "DELETE", path).status_code == 404
    continued = body | {"previous_response_id": response["id"]}
    assert as_tenant("b", "POST", "/v1/responses", json=continued).status_code == 404
    assert as_tenant("a", "GET", path).status_code == 200
    assert ask(server).status_code == 401


def test_a_format_is_enforced(serve):
    server = serve(Script(["blah "], repeat=True))
    wanted = {"type": "json_schema", "name": "w", "schema": WEATHER["parameters"], "strict": True}
    answer = ask(server, text={"format": wanted})
    assert json.loads(text_of_output(answer.json()))["city"] in ("Oslo", "Rome")
    assert answer.headers["x-ramet-enforced"] == "json_schema"
    assert answer.json()["text"]["format"] == wanted
    object_only = ask(server, text={"format": {"type": "json_object"}}, max_output_tokens=400)
    assert text_of_output(object_only.json()).startswith("{")


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "name": "weather"}])
def test_a_tool_call(serve, choice):
    before = ["Let me look.\n"] if choice == "auto" else []
    server = serve([*before, *CALL], **EXACT)
    response = ask(server, tools=[WEATHER], tool_choice=choice).json()
    events = stream(server, tools=[WEATHER], tool_choice=choice)
    call = response["output"][-1]
    assert call["id"].startswith("fc_")
    assert (call["type"], call["name"], call["status"]) == ("function_call", "weather", "completed")
    assert json.loads(call["arguments"]) == {"city": "Oslo", "days": 2}
    assert without_ids(rebuilt(events)) == without_ids(response["output"])
    assert response["status"] == "completed"
    assert response["tools"][0]["name"] == "weather"
    if choice == "auto":
        assert text_of_output(response) == "Let me look."


def test_parallel_calls_are_items_of_their_own_and_can_be_turned_off(serve):
    server = serve([*CALL, "\n", *CALL], **EXACT)
    both = ask(server, tools=[WEATHER]).json()["output"]
    assert [item["type"] for item in both] == ["function_call"] * 2
    assert both[0]["call_id"] != both[1]["call_id"]
    one = ask(server, tools=[WEATHER], parallel_tool_calls=False).json()
    assert len(one["output"]) == 1


def test_a_call_is_completed_within_max_output_tokens(serve):
    server = serve([*CALL], **EXACT)
    response = ask(server, tools=[WEATHER], max_output_tokens=len(CALL) - 1).json()
    assert response["status"] == "completed"
    call = response["output"][-1]
    assert json.loads(call["arguments"]).keys() >= set(WEATHER["parameters"]["required"])


TURN = (
    '<tool_call>{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}</tool_call>'
    "<|im_end|>\n<|im_start|>tool\nsun<|im_end|>\n<|im_start|>assistant\n"
)


def test_the_output_of_a_call_reaches_the_model(serve):
    server = serve(Script(["sunny"], when=TURN), Script([*CALL]), **EXACT)
    first = ask(server, "weather?", tools=[WEATHER]).json()
    call = first["output"][-1]
    output = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    stored = ask(server, [output], tools=[WEATHER], previous_response_id=first["id"]).json()
    assert text_of_output(stored) == "sunny"
    # The same without the store: the client sends back what it got.
    items = [{"role": "user", "content": "weather?"}, *first["output"], output]
    assert text_of_output(ask(server, items, tools=[WEATHER], store=False).json()) == "sunny"
    wrong = ask(server, [items[0], output])
    assert wrong.status_code == 400
    assert wrong.json()["error"]["param"] == "input[1].call_id"


def test_parts_of_an_answer_become_one_message(serve):
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None},
        {
            "type": "message",
            "role": "assistant",
            "id": "msg_1",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me look.", "annotations": []}],
        },
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "weather",
            "arguments": '{"city": "Oslo", "days": 2}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
    ]
    server = serve(Script(["sunny"], when="assistant\nLet me look." + TURN), Script(["not seen"]))
    assert text_of_output(ask(server, items).json()) == "sunny"


def test_instructions_join_a_leading_system_message(serve):
    server = serve(Script(["seen"], when="system\nA\n\nB<|im_end|>"), Script(["not seen"]))
    items = [{"role": "developer", "content": "B"}, {"role": "user", "content": "hi"}]
    assert text_of_output(ask(server, items, instructions="A").json()) == "seen"


def test_logprobs_are_one_a_token_of_the_text(serve):
    server = serve(["a", b"\xc3", b"\xa9", "c"])
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part = ask(server, **fields).json()["output"][0]["content"][0]
    assert [bytes(entry["bytes"]) for entry in part["logprobs"]] == [b"a", b"\xc3", b"\xa9", b"c"]
    assert all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"])
    assert rebuilt(stream(server, **fields))[0]["content"][0] == part
    assert ask(server, top_logprobs=2).status_code == 400


@pytest.fixture
def thinker(serve, monkeypatch):
    """A server whose model's template has reasoning, of an effort that can be asked for."""
    tags = "{% if reasoning_effort == 'none' %}<think></think>{% endif %}"
    end = "assistant\\n' }}"
    monkeypatch.setattr(scripted, "CHAT_TEMPLATE", scripted.CHAT_TEMPLATE.replace(end, end + tags))
    return serve(
        Script(["Four."], when="<think></think>"),
        Script(["<think>", "Two and two", " make four", "</think>", "\n", "Four."]),
    )


@pytest.mark.parametrize("effort", ["low", "none"])
def test_reasoning_is_an_item_of_its_own_and_the_answer_is_held_to_its_format(thinker, effort):
    fields = {"reasoning": {"effort": effort}}
    response = ask(thinker, **fields).json()
    events = stream(thinker, **fields)
    assert without_ids(rebuilt(events)) == without_ids(response["output"])
    assert text_of_output(response) == "Four."
    thought = [item for item in response["output"] if item["type"] == "reasoning"]
    num_reasoning = response["usage"]["output_tokens_details"]["reasoning_tokens"]
    if effort == "none":
        assert (thought, num_reasoning) == ([], 0)
    else:
        assert thought == response["output"][:1]
        assert thought[0]["content"] == [
            {"type": "reasoning_text", "text": "Two and two make four"}
        ]
        assert num_reasoning > 0
        again = [{"role": "user", "content": "hi"}, *response["output"]]
        again.append({"role": "user", "content": "and?"})
        assert ask(thinker, again).status_code == 200
    wanted = {"type": "json_schema", "name": "w", "schema": WEATHER["parameters"]}
    held = ask(thinker, text={"format": wanted}, **fields).json()
    assert json.loads(text_of_output(held))["city"] in ("Oslo", "Rome")
    assert len(held["output"]) == len(response["output"])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_output_token": 3}, "max_output_token"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0].type",
        ),
        ({"tools": [{"type": "web_serch", "search_context_size": "low"}]}, "tools[0].type"),
        ({"tool_choice": {"type": "custom"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "web_search"}}, "tool_choice.type"),
        ({"include": ["reasoning.encripted_content"]}, "include"),
        ({"background": True}, "background"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"reasoning": {"efort": "high"}}, "reasoning.efort"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"stream_options": {"include_usage": True}}, "stream_options.include_usage"),
    ],
)
def test_what_is_not_honoured_is_refused_by_name(serve, fields, param):
    server = serve(["fine"])
    answer = server.http.post("/v1/responses", json={"model": "m", "input": "hi"} | fields)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert text_of_output(ask(server).json()) == "fine"


def test_a_near_miss_names_the_right_field(serve):
    error = ask(serve(["x"]), max_output_token=3).json()["error"]
    assert "did you mean max_output_tokens" in error["message"]


def test_a_failure_behind_the_first_event_ends_the_stream_as_failed(serve):
    def fail_at_four(batch, steps=[]):  # noqa: B006
        steps.append(1)
        if len(steps) == 4:
            raise RuntimeError("a fault")

    server = serve(Script(["x"], repeat=True), model_options={"before_step": fail_at_four})
    events = stream(server)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["status"] == "failed"
    assert events[-1]["response"]["error"]["message"]


TEXT = f"<think>First,\n look ☃.</think>\n\nLet me look.\n{CALL}\n{CALL}"


@given(cuts=st.sets(st.integers(1, len(TEXT) - 1), max_size=12))
@settings(max_examples=60, deadline=None)
def test_events_join_to_the_whole_answer_however_the_text_is_cut(cuts):
    parser = ChatParser(reasoning=REASONING_FORMATS["think"], tools=TOOL_FORMATS["hermes"])
    choice = ChatChoice(parser, ShownTokens(SamplingParams(), frozenset()))
    output = OutputItems(choice.message)
    batches = []
    for start, end in itertools.pairwise([0, *sorted(cuts), len(TEXT)]):
        batches.append(output.feed(choice.feed([TextDelta(TEXT[start:end])])[0]))
        batches[-1] = json.loads(json.dumps(batches[-1]))  # as it is when it is written
    batches.append(output.feed(choice.feed([Finished("stop", Usage(), Timings())])[0]))
    batches.append(output.end(complete=True))
    items = rebuilt([event for batch in batches for event in batch])
    assert items == output.items
    reasoning, message, *calls = without_ids(items)
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "First,\n look ☃."}]
    assert message["content"][0]["text"] == "Let me look."
    assert [json.loads(call["arguments"]) for call in calls] == [{"city": "Oslo", "days": 2}] * 2
    assert {item["status"] for item in items} == {"completed"}


def test_many_together_are_all_answered(serve):
    server = serve(["Hello", " world"])

    async def ask_all():
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            messages = {
                "model": "m",
                "max_tokens": 9,
                "messages": [{"role": "user", "content": "hi"}],
            }
            bodies = [("/v1/responses", {"model": "m", "input": "hi"}), ("/v1/messages", messages)]
            return await asyncio.gather(
                *(
                    client.post(path, json=body | {"stream": bool(i % 2)})
                    for i in range(40)
                    for path, body in bodies
                )
            )

    answers = asyncio.run(ask_all())
    assert {answer.status_code for answer in answers} == {200}
    assert all("Hello" in answer.text for answer in answers)
    ended = [a.text for a in answers if a.headers["content-type"].startswith("text/event-stream")]
    assert len(ended) == 40
    assert all("response.completed" in text or "message_stop" in text for text in ended)
    assert server.num_live() == 0


def test_a_schema_with_a_huge_integer_is_sent_back(serve):
    server = serve("fine")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 10**30}}}
    body = {"input": "hi", "tools": [{"type": "function", "name": "f", "parameters": schema}]}
    answer = server.http.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["tools"][0]["parameters"] == schema
    stored = server.http.get(f"/v1/responses/{answer.json()['id']}")
    assert stored.json()["tools"] == answer.json()["tools"]
    streamed = server.http.post("/v1/responses", json={**body, "stream": True})
    assert str(10**30) in streamed.text
    assert "response.completed" in streamed.text
