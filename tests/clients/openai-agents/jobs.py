"""openai-agents: its loop with tools, a handoff and a typed result, by responses and by chat."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Literal

import openai
from agents import (
    Agent,
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from pydantic import BaseModel

set_tracing_disabled(True)


class City(BaseModel):
    """A city."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


@function_tool
def weather(place: Literal["Oslo"]) -> str:
    """Tells the weather."""
    return {"Oslo": "sun and 20 degrees"}[place]


@contextlib.asynccontextmanager
async def _models(url: str) -> AsyncIterator[list[Model]]:
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    async with client:
        yield [
            OpenAIResponsesModel(model="m", openai_client=client),
            OpenAIChatCompletionsModel(model="m", openai_client=client),
        ]


async def job_use_a_tool(url: str) -> None:
    async with _models(url) as models:
        for model in models:
            agent = Agent(name="a", instructions="Be brief.", model=model, tools=[weather])
            result = await Runner.run(agent, "The weather?")
            assert result.final_output == "It is sunny."


async def job_stream_the_loop(url: str) -> None:
    async with _models(url) as models:
        for model in models:
            agent = Agent(name="a", instructions="Be brief.", model=model, tools=[weather])
            result = Runner.run_streamed(agent, "The weather?")
            kinds = [event.type async for event in result.stream_events()]
            assert "raw_response_event" in kinds
            assert result.final_output == "It is sunny."


async def job_a_typed_result(url: str) -> None:
    async with _models(url) as models:
        for model in models:
            agent = Agent(name="a", instructions="Be brief.", model=model, output_type=City)
            assert isinstance((await Runner.run(agent, "Name a city.")).final_output, City)


async def job_go_on_from_a_stored_response(url: str) -> None:
    async with _models(url) as (responses, _):
        agent = Agent(name="a", instructions="Be brief.", model=responses)
        first = await Runner.run(agent, "hi")
        second = await Runner.run(agent, "and?", previous_response_id=first.last_response_id)
    assert second.final_output == "Hello world"


async def job_hand_over(url: str) -> None:
    async with _models(url) as models:
        for model in models:
            expert = Agent(name="expert", instructions="Say sun and 20 degrees.", model=model)
            first = Agent(
                name="first", instructions="Ask the expert.", model=model, handoffs=[expert]
            )
            result = await Runner.run(first, "Go.")
            assert (result.last_agent.name, result.final_output) == ("expert", "It is sunny.")
