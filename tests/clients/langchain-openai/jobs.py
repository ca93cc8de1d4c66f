"""langchain-openai: chat, structured output and tools, by chat completions and by responses."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


@tool
def weather(place: Literal["Oslo"]) -> str:
    """Tells the weather."""
    return {"Oslo": "sun and 20 degrees"}[place]


def _model(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model="m", base_url=f"{url}/v1", api_key="none", max_retries=0, temperature=0, **options
    )


def job_chat(url: str) -> None:
    answer = _model(url).invoke("hi")
    assert answer.content == "Hello world"
    assert answer.usage_metadata["output_tokens"] == 3


def job_stream(url: str) -> None:
    chunks = list(_model(url, stream_usage=True).stream("hi"))
    assert "".join(chunk.content for chunk in chunks) == "Hello world"
    assert sum((c.usage_metadata or {}).get("output_tokens", 0) for c in chunks) == 3


def job_structured_output_by_json_schema(url: str) -> None:
    model = _model(url).with_structured_output(City, method="json_schema")
    assert isinstance(model.invoke("Name a city."), City)


def job_structured_output_by_a_tool(url: str) -> None:
    model = _model(url).with_structured_output(City, method="function_calling")
    assert isinstance(model.invoke("Name a city."), City)


def job_structured_output_by_responses(url: str) -> None:
    model = _model(url, use_responses_api=True).with_structured_output(City)
    assert isinstance(model.invoke("Name a city."), City)


def _use_a_tool(model: ChatOpenAI) -> None:
    bound = model.bind_tools([weather])
    messages = [HumanMessage("The weather?")]
    answer = bound.invoke(messages)
    (call,) = answer.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"place": "Oslo"})
    result = weather.invoke(call)
    assert isinstance(result, ToolMessage)
    assert bound.invoke([*messages, answer, result]).text == "It is sunny."


def job_use_a_tool(url: str) -> None:
    _use_a_tool(_model(url))


def job_use_a_tool_by_responses(url: str) -> None:
    _use_a_tool(_model(url, use_responses_api=True))


def job_use_a_tool_by_stored_responses(url: str) -> None:
    _use_a_tool(_model(url, use_previous_response_id=True, use_responses_api=True))


def job_stream_a_tool_call(url: str) -> None:
    chunks = list(_model(url).bind_tools([weather], tool_choice="any").stream("The weather?"))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole += chunk
    assert whole.tool_calls[0]["args"] == {"place": "Oslo"}


def job_several_prompts_at_once(url: str) -> None:
    answers = _model(url).batch(["hi"] * 8)
    assert {answer.content for answer in answers} == {"Hello world"}
