"""litellm: OpenAI's and Anthropic's API behind one function."""

from __future__ import annotations

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # fetches nothing

import litellm

litellm.telemetry = False

HI = [{"role": "user", "content": "hi"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"place": {"const": "Oslo"}},
            "required": ["place"],
            "additionalProperties": False,
        },
    },
}


def _openai(url: str) -> dict[str, str]:
    return {"model": "openai/m", "api_base": f"{url}/v1", "api_key": "none"}


def _anthropic(url: str) -> dict[str, str]:
    return {"model": "anthropic/m", "api_base": url, "api_key": "none"}


def job_chat(url: str) -> None:
    answer = litellm.completion(**_openai(url), messages=HI, temperature=0, seed=1)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.usage.completion_tokens == 3


def job_stream(url: str) -> None:
    chunks = litellm.completion(**_openai(url), messages=HI, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"


async def job_asynchronous_stream(url: str) -> None:
    chunks = await litellm.acompletion(**_openai(url), messages=HI, stream=True)
    text = [chunk.choices[0].delta.content or "" async for chunk in chunks]
    assert "".join(text) == "Hello world"


def job_structured_output(url: str) -> None:
    schema = {"type": "object", "properties": {"name": {"enum": ["Oslo", "Rome"]}}}
    schema |= {"required": ["name"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    messages = [{"role": "user", "content": "Name a city."}]
    answer = litellm.completion(**_openai(url), messages=messages, response_format=wanted)
    assert json.loads(answer.choices[0].message.content)["name"] in ("Oslo", "Rome")


def _use_a_tool(options: dict[str, str]) -> None:
    messages = [{"role": "user", "content": "The weather?"}]
    answer = litellm.completion(**options, messages=messages, tools=[WEATHER], max_tokens=200)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"place": "Oslo"},
    )
    messages += [
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "sun and 20 degrees"},
    ]
    answer = litellm.completion(**options, messages=messages, tools=[WEATHER], max_tokens=200)
    assert answer.choices[0].message.content == "It is sunny."


def job_use_a_tool(url: str) -> None:
    _use_a_tool(_openai(url))


def job_use_a_tool_by_anthropics_api(url: str) -> None:
    _use_a_tool(_anthropic(url))


def job_stream_by_anthropics_api(url: str) -> None:
    chunks = litellm.completion(**_anthropic(url), messages=HI, stream=True, max_tokens=20)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello world"


def job_responses(url: str) -> None:
    answer = litellm.responses(**_openai(url), input="hi")
    assert answer.output[0].content[0].text == "Hello world"


def job_a_refusal_keeps_its_status(url: str) -> None:
    message = ""
    try:
        litellm.completion(**_openai(url), messages=HI, extra_body={"max_token": 3})
    except litellm.BadRequestError as error:
        message = str(error)
    assert "did you mean max_tokens" in message
