"""The official clients and the bundled model: small real jobs, greedy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import anthropic
import openai
import pydantic
import pytest

from ramet.lang import State, program
from ramet.lang.serving import PROGRAMS
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.server import RunningServer, running_server

pytestmark = pytest.mark.model

CAPITAL = "What is the capital of France?"


class Capital(pydantic.BaseModel):
    """A capital."""

    country: Literal["France", "Norway"]
    city: Literal["Paris", "Oslo", "Rome"]


TOOL = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    config = EngineConfig(cache_bytes=64 << 20)
    with (
        Engine.from_model("smollm2", config) as engine,
        running_server(engine, (PROGRAMS,)) as server,
    ):
        yield server


@pytest.fixture(scope="module")
def by_openai(server: RunningServer) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def by_anthropic(server: RunningServer) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def model(by_openai: openai.OpenAI) -> str:
    return by_openai.models.list().data[0].id


def test_the_three_apis_give_one_answer(model, by_openai, by_anthropic):
    messages = [{"role": "user", "content": CAPITAL}]
    options = {"model": model, "temperature": 0}
    chat = by_openai.chat.completions.create(messages=messages, max_tokens=24, **options)
    text = chat.choices[0].message.content
    assert text
    response = by_openai.responses.create(input=CAPITAL, max_output_tokens=24, **options)
    assert response.output_text == text
    extra = {"extra_body": {"temperature": 0}}
    message = by_anthropic.messages.create(model=model, max_tokens=24, messages=messages, **extra)
    assert message.content[0].text == text
    with by_anthropic.messages.stream(
        model=model, max_tokens=24, messages=messages, **extra
    ) as stream:
        assert "".join(stream.text_stream) == text
    # The prompt is the same, so all but the first found it in the cache.
    assert message.usage.cache_read_input_tokens > 0


def test_typed_answers(model, by_openai, by_anthropic):
    chat = by_openai.chat.completions.parse(
        model=model,
        messages=[{"role": "user", "content": CAPITAL}],
        response_format=Capital,
        temperature=0,
    )
    parsed = chat.choices[0].message.parsed
    assert isinstance(parsed, Capital)
    response = by_openai.responses.parse(
        model=model, input=CAPITAL, text_format=Capital, temperature=0
    )
    assert response.output_parsed == parsed
    message = by_anthropic.messages.parse(
        model=model,
        max_tokens=100,
        messages=[{"role": "user", "content": CAPITAL}],
        output_format=Capital,
        extra_body={"temperature": 0},
    )
    assert isinstance(message.parsed_output, Capital)


def test_tool_calls(model, by_openai, by_anthropic):
    question = "Look up the weather in Oslo."
    response = by_openai.responses.create(
        model=model,
        input=question,
        tools=[{"type": "function", "name": "weather", "parameters": TOOL}],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
    )
    (call,) = response.output
    assert call.name == "weather"
    assert json.loads(call.arguments)["city"] in TOOL["properties"]["city"]["enum"]
    message = by_anthropic.messages.create(
        model=model,
        max_tokens=200,
        messages=[{"role": "user", "content": question}],
        tools=[{"name": "weather", "input_schema": TOOL}],
        tool_choice={"type": "tool", "name": "weather"},
        extra_body={"temperature": 0},
    )
    assert message.stop_reason == "tool_use"
    assert message.content[0].input["city"] in TOOL["properties"]["city"]["enum"]


def test_embeddings(server: RunningServer, by_openai: openai.OpenAI) -> None:
    texts = ["The cat sat on the mat.", "A cat was sitting on a mat.", "Interest rates rose again."]
    together = by_openai.embeddings.create(model=server.engine.model_name, input=texts)
    cat, same, other = (each.embedding for each in together.data)
    assert len(cat) == 576
    likeness = [sum(a * b for a, b in zip(cat, each, strict=True)) for each in (cat, same, other)]
    assert likeness[0] == pytest.approx(1, abs=1e-5)
    assert likeness[1] > likeness[2]
    alone = by_openai.embeddings.create(model=server.engine.model_name, input=texts[1])
    assert alone.data[0].embedding == same


@program
def capital(s: State, question: str) -> None:
    s.user(question)
    branches = s.fork(2)
    for branch, topic in zip(branches, ("food", "weather"), strict=True):
        branch.user(f"One word about its {topic}.")
        branch.gen("word", regex=" ?[a-z]{3,12}", temperature=0)
    branches.join()
    s.user(f"Which country is it in? Think of {branches['word'][0]}.")
    s.gen("answer", Capital, max_tokens=60, temperature=0)


def test_a_programs_graph_gives_on_the_server_what_it_gives_here(server):
    each = capital.using(seed=0)
    here = each.run(CAPITAL, backend=server.engine)
    body = {"graph": each.graph(CAPITAL).to_json()}
    answer = server.http.post("/v1/programs", json=body)
    assert answer.status_code == 200, answer.text
    values, usage = answer.json()["values"], answer.json()["usage"]
    assert values["word"] == here["word"]
    assert Capital.model_validate(values["answer"]) == here["answer"]
    assert usage["num_calls"] == 3
    assert 0 < usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]
