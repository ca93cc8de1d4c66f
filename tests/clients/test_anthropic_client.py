"""The official anthropic package against a server on a socket."""

from __future__ import annotations

import contextlib
import json
from typing import Literal

import anthropic
import pydantic
import pytest

from ramet.runtime.testing.scripted_model import Script

HI = [{"role": "user", "content": "hi"}]
BASE = {"model": "m", "max_tokens": 300}
WEATHER = {
    "name": "weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"const": "Oslo"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class City(pydantic.BaseModel):
    """What the model is asked for."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


@pytest.fixture
def connect():
    """The anthropic package's client of a server: ``connect(server)``."""
    with contextlib.ExitStack() as stack:

        def connect(server, **options):
            return stack.enter_context(
                anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, **options)
            )

        yield connect


def test_create_and_count(serve, connect):
    client = connect(serve(["Hello", " world"]))
    message = client.messages.create(**BASE, system="Be brief.", messages=HI)
    assert message.content[0].text == "Hello world"
    assert message.stop_reason == "end_turn"
    counted = client.messages.count_tokens(model="m", system="Be brief.", messages=HI)
    assert counted.input_tokens == message.usage.input_tokens


def test_stream(serve, connect):
    client = connect(serve(["Hello", " world"]))
    with client.messages.stream(**BASE, messages=HI) as stream:
        assert "".join(stream.text_stream) == "Hello world"
        final = stream.get_final_message()
    assert final.content[0].text == "Hello world"
    assert final.usage.output_tokens == 3


def test_parse_into_a_pydantic_model(serve, connect):
    client = connect(serve(Script(["blah "], repeat=True)))
    parsed = client.messages.parse(**BASE, messages=HI, output_format=City)
    assert isinstance(parsed.parsed_output, City)


def test_an_agent_loop_with_a_tool(serve, connect):
    server = serve(Script(["It is sunny."], when="tool\nsun<|im_end|>"), Script(["<tool_call>"]))
    client = connect(server)
    turns = [{"role": "user", "content": "Weather in Oslo?"}]
    with client.messages.stream(**BASE, messages=turns, tools=[WEATHER]) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        message = stream.get_final_message()
    (call,) = message.content
    assert message.stop_reason == "tool_use"
    assert (call.type, call.name, call.input) == ("tool_use", "weather", {"city": "Oslo"})
    assert json.loads("".join(pieces)) == call.input
    turns += [
        {"role": "assistant", "content": message.content},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sun"}],
        },
    ]
    answer = client.messages.create(**BASE, messages=turns, tools=[WEATHER])
    assert answer.content[0].text == "It is sunny."


def test_the_packages_own_tool_runner(serve, connect):
    server = serve(Script(["It is sunny."], when="tool\nsun<|im_end|>"), Script(["<tool_call>"]))

    @anthropic.beta_tool
    def weather(city: Literal["Oslo"]) -> str:
        """Tells the weather."""
        return {"Oslo": "sun"}[city]

    runner = connect(server).beta.messages.tool_runner(**BASE, messages=HI, tools=[weather])
    final = runner.until_done()
    assert final.content[0].text == "It is sunny."


def test_errors(serve, connect, tmp_path):
    client = connect(serve(["ok"]))
    with pytest.raises(anthropic.BadRequestError, match="did you mean stop_sequences"):
        client.messages.create(**BASE, messages=HI, extra_body={"stop_sequence": ["a"]})
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**BASE | {"model": "other"}, messages=HI)
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"tenants": [{"name": "a", "keys": ["sk-right"]}]}))
    with pytest.raises(anthropic.AuthenticationError):
        connect(serve(["ok"], api_keys_file=keys)).messages.create(**BASE, messages=HI)


def test_an_error_in_a_stream_is_raised(serve, connect):
    def fail_at_four(batch, steps=[]):  # noqa: B006
        steps.append(1)
        if len(steps) == 4:
            raise RuntimeError("a fault")

    server = serve(Script(["x"], repeat=True), model_options={"before_step": fail_at_four})
    with (
        pytest.raises(anthropic.APIError),
        connect(server).messages.stream(**BASE, messages=HI) as stream,
    ):
        stream.until_done()


async def test_async(serve):
    server = serve(["Hello"])
    async with anthropic.AsyncAnthropic(base_url=server.url, api_key="none") as client:
        message = await client.messages.create(**BASE, messages=HI)
    assert message.content[0].text == "Hello"
