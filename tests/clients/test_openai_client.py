"""The official openai package against a server on a socket."""

from __future__ import annotations

import asyncio
import json
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest

from ramet.runtime.testing.scripted_model import Script

HI = [{"role": "user", "content": "hi"}]


def test_chat(serve, openai_client):
    client = openai_client(serve(["Hello", " world"]))
    answer = client.chat.completions.create(model="m", messages=HI, seed=1, temperature=0.5)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream(serve, openai_client):
    client = openai_client(serve(["Hello", " world"]))
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(client.chat.completions.create(model="m", messages=HI, **options))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == "Hello world"
    assert chunks[-1].usage.completion_tokens == 3


def test_chat_stream_helper(serve, openai_client):
    client = openai_client(serve(["Hello", " world"]))
    with client.chat.completions.stream(model="m", messages=HI) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "content.delta" in kinds
    assert final.choices[0].message.content == "Hello world"


def test_completions(serve, openai_client):
    client = openai_client(serve(["Hello"]))
    answer = client.completions.create(model="m", prompt=["a", "b"], logprobs=2, n=2)
    assert [choice.text for choice in answer.choices] == ["Hello"] * 4
    assert len(answer.choices[0].logprobs.tokens) == 1
    chunks = client.completions.create(model="m", prompt="a", stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello"


def test_models_and_errors(serve, openai_client):
    client = openai_client(serve(["ok"]))
    assert [model.id for model in client.models.list()] == ["m"]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model="m", messages=HI, extra_body={"max_token": 3})
    assert error.value.code == "unknown_parameter"
    assert error.value.param == "max_token"


def test_an_error_in_a_stream_is_raised(serve, openai_client):
    steps = []

    def fail_later(batch):
        steps.append(batch)
        if len(steps) > 30:
            raise RuntimeError("a fault")

    server = serve(Script(["x"], repeat=True), model_options={"before_step": fail_later})
    chunks = openai_client(server).completions.create(model="m", prompt="a", stream=True)
    assert next(chunks).choices[0].text
    with pytest.raises(openai.APIError):
        list(chunks)


class City(pydantic.BaseModel):
    """What the model is asked for."""

    model_config = pydantic.ConfigDict(extra="forbid")

    name: str = pydantic.Field(max_length=20)
    kind: Literal["town", "capital"]
    inhabitants: int = pydantic.Field(ge=0, le=10**9)


def test_parse_into_a_pydantic_model(serve, openai_client):
    # The model wants to ramble; the schema leaves it only what is valid.
    client = openai_client(serve(Script(["blah "], repeat=True)))
    answer = client.chat.completions.parse(
        model="m", messages=HI, response_format=City, max_tokens=300
    )
    assert isinstance(answer.choices[0].message.parsed, City)


def test_a_schema_is_kept_in_every_choice_of_a_stream(serve, text_of):
    server = serve(Script(["blah "], repeat=True))
    schema = City.model_json_schema()
    wanted = {"type": "json_schema", "json_schema": {"name": "city", "schema": schema}}
    chunks = server.chat_stream(response_format=wanted, n=3, max_tokens=300, temperature=1, seed=5)
    for index in range(3):
        jsonschema.validate(json.loads(text_of(chunks, index)), schema)
    whole = server.chat(response_format=wanted, max_tokens=300)
    assert whole.headers["x-ramet-enforced"] == "json_schema"


def test_json_mode_ends_even_if_the_model_only_wants_line_breaks(serve, openai_client):
    client = openai_client(serve(Script(["\n"], repeat=True)))
    answer = client.chat.completions.create(
        model="m",
        messages=HI,
        response_format={"type": "json_object"},
        max_tokens=2000,
        temperature=0,
    )
    assert answer.choices[0].finish_reason == "stop"
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


@pytest.mark.parametrize(
    ("fields", "accepts"),
    [
        ({"guided_choice": ["yes", "no"]}, ["yes", "no"]),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, ["yes", "no"]),
        ({"guided_regex": "[ab]c"}, ["ac", "bc"]),
        ({"structured_outputs": {"regex": "[ab]c"}}, ["ac", "bc"]),
    ],
)
def test_vllms_constraint_fields(serve, openai_client, fields, accepts):
    client = openai_client(serve(Script(["blah "], repeat=True)))
    answer = client.chat.completions.create(model="m", messages=HI, extra_body=fields)
    assert answer.choices[0].message.content in accepts


@pytest.mark.parametrize(
    ("fields", "values"),
    [
        ({"structured_outputs": {"json": {"enum": [1, "b"]}}}, [1, "b"]),
        ({"guided_json": '{"const": "x"}'}, ["x"]),
    ],
)
def test_vllms_schema_fields(serve, openai_client, fields, values):
    client = openai_client(serve(Script(["blah "], repeat=True)))
    answer = client.chat.completions.create(model="m", messages=HI, extra_body=fields)
    assert json.loads(answer.choices[0].message.content) in values


@pytest.mark.parametrize(
    "wanted",
    [
        {"guided_regex": "(["},
        {"structured_outputs": {"regex": "(a)\\1"}},
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "nothing"}},
            }
        },
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"$ref": "#/nowhere"}},
            }
        },
        {"guided_regex": "a{1,50000}b{1,50000}c{1,50000}"},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_constraint_that_cannot_be_kept_is_an_error_of_its_request_alone(serve, wanted, stream):
    server = serve(["fine"])
    answer = server.chat(stream=stream, **wanted)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] in ("invalid_grammar", "grammar_too_complex")
    assert server.chat().json()["choices"][0]["message"]["content"] == "fine"


def test_a_prefix_that_many_share_is_computed_once_even_when_all_come_together(serve):
    server = serve(["ok"], model_options={"num_pages": 2048})
    prefix = "A shared system prompt with plenty of words in it. " * 40

    async def ask_all():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            return await asyncio.gather(
                *(
                    client.chat.completions.create(
                        model="m",
                        messages=[
                            {"role": "system", "content": prefix},
                            {"role": "user", "content": f"question {i}"},
                        ],
                    )
                    for i in range(8)
                )
            )

    usages = [answer.usage for answer in asyncio.run(ask_all())]
    assert min(usage.prompt_tokens for usage in usages) > 512
    cached = [usage.prompt_tokens_details.cached_tokens for usage in usages]
    assert sum(count >= 512 for count in cached) >= 7
    assert all(c < usage.prompt_tokens for c, usage in zip(cached, usages, strict=True))


def test_logprobs_parse(serve, openai_client):
    client = openai_client(serve(["a", "b"]))
    answer = client.chat.completions.create(model="m", messages=HI, logprobs=True, top_logprobs=3)
    entries = answer.choices[0].logprobs.content
    assert [entry.token for entry in entries] == ["a", "b"]
    assert all(len(entry.top_logprobs) == 3 for entry in entries)
