"""The official openai package's Responses API against a server on a socket."""

from __future__ import annotations

import json
from typing import Literal

import openai
import pydantic
import pytest

from ramet.runtime.testing.scripted_model import Script


class City(pydantic.BaseModel):
    """What the model is asked for."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


class Weather(pydantic.BaseModel):
    """Tells the weather."""

    city: Literal["Oslo"]


def test_create_and_go_on(serve, openai_client):
    server = serve(Script(["Hello", " again"], when="world<|im_end|>"), Script(["Hello", " world"]))
    client = openai_client(server)
    first = client.responses.create(model="m", input="hi", instructions="Be brief.")
    assert first.output_text == "Hello world"
    second = client.responses.create(model="m", input="and?", previous_response_id=first.id)
    assert second.output_text == "Hello again"
    assert client.responses.retrieve(first.id) == first
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_raw_stream(serve, openai_client):
    client = openai_client(serve(["Hello", " world"]))
    events = list(client.responses.create(model="m", input="hi", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == "Hello world"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello world"


def test_parse_into_a_pydantic_model(serve, openai_client):
    client = openai_client(serve(Script(["blah "], repeat=True)))
    parsed = client.responses.parse(model="m", input="a city", text_format=City)
    assert isinstance(parsed.output_parsed, City)
    with client.responses.stream(model="m", input="a city", text_format=City) as stream:
        snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, City)
    assert json.loads(snapshots[-1]) == final.output_parsed.model_dump()


def test_an_agent_loop_with_a_tool(serve, openai_client):
    server = serve(Script(["It is sunny."], when="tool\nsun<|im_end|>"), Script(["<tool_call>"]))
    client = openai_client(server)
    schema = Weather.model_json_schema() | {"additionalProperties": False}
    tools = [{"type": "function", "name": "Weather", "parameters": schema, "strict": True}]
    history = [{"role": "user", "content": "Weather in Oslo?"}]
    with client.responses.stream(model="m", input=history, tools=tools) as stream:
        arguments = [
            event.delta
            for event in stream
            if event.type == "response.function_call_arguments.delta"
        ]
        response = stream.get_final_response()
    (call,) = response.output
    assert (call.type, call.name) == ("function_call", "Weather")
    assert "".join(arguments) == call.arguments
    assert call.parsed_arguments == {"city": "Oslo"}
    history += response.output
    history.append({"type": "function_call_output", "call_id": call.call_id, "output": "sun"})
    answer = client.responses.create(model="m", input=history, tools=tools, store=False)
    assert answer.output_text == "It is sunny."


def test_count_the_input(serve, openai_client):
    client = openai_client(serve(["Hello"]))
    fields = {"model": "m", "input": "hi", "instructions": "Be brief."}
    counted = client.responses.input_tokens.count(**fields)
    response = client.responses.create(**fields)
    assert counted.input_tokens == response.usage.input_tokens
    more = {"model": "m", "input": "and?", "previous_response_id": response.id}
    assert client.responses.input_tokens.count(**more).input_tokens == (
        client.responses.create(**more).usage.input_tokens
    )


def test_errors(serve, openai_client):
    client = openai_client(serve(["ok"]))
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(model="m", input="hi", background=True)
    assert error.value.param == "background"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="other", input="hi")


async def test_async(serve):
    server = serve(["Hello"])
    async with (
        openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client,
        client.responses.stream(model="m", input="hi") as stream,
    ):
        final = await stream.get_final_response()
    assert final.output_text == "Hello"
