"""pydantic-ai: agents with tools and typed results, by each of the three APIs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider


class City(BaseModel):
    """A city."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


def _chat(url: str) -> Model:
    return OpenAIChatModel("m", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))


def _responses(url: str) -> Model:
    return OpenAIResponsesModel("m", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="none"))


def _messages(url: str) -> Model:
    return AnthropicModel("m", provider=AnthropicProvider(base_url=url, api_key="none"))


async def _use_a_tool(model: Model) -> None:
    agent = Agent(model, instructions="Answer in one sentence.")
    asked = []

    @agent.tool_plain
    def weather(place: Literal["Oslo"]) -> str:
        """Tells the weather."""
        asked.append(place)
        return "sun and 20 degrees"

    result = await agent.run("The weather?")
    assert (result.output, asked) == ("It is sunny.", ["Oslo"])
    assert result.usage.output_tokens > 0


async def _stream(model: Model) -> None:
    async with Agent(model).run_stream("hi") as result:
        texts = [text async for text in result.stream_text(delta=True)]
    assert "".join(texts) == "Hello world"


async def job_use_a_tool_by_chat(url: str) -> None:
    await _use_a_tool(_chat(url))


async def job_use_a_tool_by_responses(url: str) -> None:
    await _use_a_tool(_responses(url))


async def job_use_a_tool_by_anthropics_api(url: str) -> None:
    await _use_a_tool(_messages(url))


async def job_stream_by_chat(url: str) -> None:
    await _stream(_chat(url))


async def job_stream_by_responses(url: str) -> None:
    await _stream(_responses(url))


async def job_stream_by_anthropics_api(url: str) -> None:
    await _stream(_messages(url))


async def job_a_typed_result_by_a_schema(url: str) -> None:
    result = await Agent(_chat(url), output_type=NativeOutput(City)).run("Name a city.")
    assert isinstance(result.output, City)


async def job_a_typed_result_by_a_tool(url: str) -> None:
    for model in (_chat(url), _responses(url), _messages(url)):
        result = await Agent(model, output_type=ToolOutput(City)).run("Name a city.")
        assert isinstance(result.output, City)
