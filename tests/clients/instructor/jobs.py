"""instructor: pydantic models by tools, by JSON schema and in parts."""

from __future__ import annotations

from typing import Literal

import instructor
import openai
from pydantic import BaseModel


class City(BaseModel):
    """A city."""

    name: Literal["Oslo", "Rome"]
    is_capital: bool


MESSAGES = [{"role": "user", "content": "Name a city."}]


def _extract(url: str, mode: instructor.Mode) -> City:
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), mode=mode
    )
    return client.create(model="m", response_model=City, messages=MESSAGES, max_retries=0)


def job_by_a_tool(url: str) -> None:
    assert isinstance(_extract(url, instructor.Mode.TOOLS), City)


def job_by_a_strict_tool(url: str) -> None:
    assert isinstance(_extract(url, instructor.Mode.TOOLS_STRICT), City)


def job_by_a_json_schema(url: str) -> None:
    assert isinstance(_extract(url, instructor.Mode.JSON_SCHEMA), City)


def job_in_parts(url: str) -> None:
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="none"), mode=instructor.Mode.JSON_SCHEMA
    )
    parts = list(client.create_partial(model="m", response_model=City, messages=MESSAGES))
    assert parts[-1].name in ("Oslo", "Rome")


def job_by_responses(url: str) -> None:
    client = instructor.from_openai(
        openai.OpenAI(base_url=f"{url}/v1", api_key="none"), mode=instructor.Mode.RESPONSES_TOOLS
    )
    city = client.create(model="m", response_model=City, messages=MESSAGES, max_retries=0)
    assert isinstance(city, City)


async def job_asynchronously(url: str) -> None:
    client = instructor.from_openai(
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none"), mode=instructor.Mode.TOOLS
    )
    city = await client.create(model="m", response_model=City, messages=MESSAGES, max_retries=0)
    assert isinstance(city, City)
