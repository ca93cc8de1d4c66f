"""ollama: chats, streams, schemas, tools and what it asks about models."""

from __future__ import annotations

from typing import Literal

import ollama
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


CITY = [{"role": "user", "content": "Name a city."}]
HELLO = [{"role": "user", "content": "Hi"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}},
            "required": ["place"],
        },
    },
}


def job_chat(url: str) -> None:
    answer = ollama.Client(url).chat("m", HELLO, options={"temperature": 0, "num_ctx": 4096})
    assert answer.message.content == "Hello world"
    assert answer.done_reason == "stop"
    assert answer.eval_count
    assert answer.total_duration


def job_stream(url: str) -> None:
    parts = list(ollama.Client(url).chat("m:latest", HELLO, stream=True))
    assert "".join(part.message.content for part in parts) == "Hello world"
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]


def job_a_typed_result(url: str) -> None:
    answer = ollama.Client(url).chat("m", CITY, format=City.model_json_schema())
    assert City.model_validate_json(answer.message.content).name == "Oslo"


def job_a_tool_loop(url: str) -> None:
    client = ollama.Client(url)
    messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
    answer = client.chat("m", messages, tools=[WEATHER])
    (call,) = answer.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", {"place": "Oslo"})
    messages += [
        answer.message,
        {"role": "tool", "tool_name": "weather", "content": "sun and 20 degrees"},
    ]
    assert client.chat("m", messages, tools=[WEATHER]).message.content == "It is sunny."


def job_generate(url: str) -> None:
    client = ollama.Client(url)
    assert client.generate("m", "Hi", options={"num_predict": 8}).response == "Hello world"
    assert client.generate("m").done_reason == "load"


def job_models(url: str) -> None:
    client = ollama.Client(url)
    assert client.list().models[0].model == "m:latest"
    assert client.ps().models[0].model == "m:latest"
    assert "completion" in client.show("m").capabilities


def job_errors(url: str) -> None:
    found = None
    try:
        ollama.Client(url).chat("nothing", HELLO)
    except ollama.ResponseError as error:
        found = error
    assert found is not None
    assert found.status_code == 404
    assert "not served" in found.error


async def job_asynchronously(url: str) -> None:
    stream = await ollama.AsyncClient(url).generate("m", "Hi", stream=True)
    assert "".join([part.response async for part in stream]) == "Hello world"
