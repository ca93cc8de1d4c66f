"""Ollama's API: its options, its lines, and what it refuses by name."""

from __future__ import annotations

import json

import pytest

from ramet.runtime.server.ollama.bodies import OllamaChatRequest
from ramet.runtime.server.ollama.conversation import chat_conversation
from ramet.runtime.testing.scripted_model import Script

ASK = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


def lines(answer) -> list[dict]:
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    return [json.loads(each) for each in answer.text.splitlines()]


def test_an_answer_is_streamed_unless_it_is_not_wanted(serve) -> None:
    server = serve(Script(["Hel", "lo"]), Script(["Hel", "lo"]))
    streamed = lines(server.http.post("/api/chat", json=ASK))
    assert "".join(each["message"]["content"] for each in streamed) == "Hello"
    assert [each["done"] for each in streamed] == [False] * (len(streamed) - 1) + [True]
    last = streamed[-1]
    assert (last["done_reason"], last["eval_count"] > 0) == ("stop", True)
    times = [last["load_duration"], last["prompt_eval_duration"], last["eval_duration"]]
    assert sum(times) == pytest.approx(last["total_duration"], abs=3)
    whole = server.http.post("/api/chat", json={**ASK, "stream": False}).json()
    assert whole["message"] == {"role": "assistant", "content": "Hello"}


def test_options_are_sampling_parameters(serve) -> None:
    server = serve(Script(["a"], repeat=True))
    options = {"num_predict": 3, "temperature": 0, "num_ctx": 2048}
    body = {"model": "m", "prompt": "x", "stream": False, "options": options}
    answer = server.http.post("/api/generate", json=body).json()
    assert (answer["response"], answer["done_reason"]) == ("aaa", "length")
    assert any("options.num_ctx" in each for each in map(str, answer["warnings"]))


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({**ASK, "options": {"mirostat": 2}}, "mirostat is not supported"),
        ({**ASK, "options": {"temperature": -1}}, "options.temperature"),
        ({**ASK, "options": {"tempratur": 1}}, "did you mean"),
        ({**ASK, "messages": [{"role": "user", "content": "x", "images": ["a"]}]}, "images"),
        ({**ASK, "format": {"type": "nothing"}}, "format"),
        ({**ASK, "model": "other"}, "'other' is not served"),
    ],
)
def test_errors_are_a_text_that_names_the_field(serve, body: dict, problem: str) -> None:
    answer = serve().http.post("/api/chat", json=body)
    assert answer.status_code in (400, 404)
    assert problem in answer.json()["error"]


@pytest.mark.parametrize("field", ["raw", "suffix", "template"])
def test_generate_refuses_what_it_cannot_do(serve, field: str) -> None:
    body = {"model": "m", "prompt": "x", field: True if field == "raw" else "x"}
    answer = serve().http.post("/api/generate", json=body)
    assert (answer.status_code, field in answer.json()["error"]) == (400, True)


def test_a_format_is_a_constraint(serve) -> None:
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}
    server = serve(Script(["blah"], repeat=True))
    body = {**ASK, "stream": False, "format": schema}
    content = server.http.post("/api/chat", json=body).json()["message"]["content"]
    assert json.loads(content)["n"] in (1, 2)
    body = {**ASK, "stream": False, "format": "json", "options": {"num_predict": 20}}
    content = server.http.post("/api/chat", json=body).json()["message"]["content"]
    assert content.lstrip().startswith("{")


def test_results_without_ids_belong_to_calls_by_name_and_order() -> None:
    messages = [
        *ASK["messages"],
        {"role": "assistant", "tool_calls": [
            {"function": {"name": "a", "arguments": {"n": 1}}},
            {"function": {"name": "b", "arguments": {}}}]},
        {"role": "tool", "tool_name": "b", "content": "of b"},
        {"role": "tool", "content": "of a"},
    ]  # fmt: skip
    body = OllamaChatRequest.model_validate({"model": "m", "messages": messages})
    results = [each for each in chat_conversation(body).messages if each["role"] == "tool"]
    assert [(each["content"], each["name"]) for each in results] == [("of b", "b"), ("of a", "a")]


def test_models_have_a_tag_that_may_be_left_out(serve) -> None:
    server = serve(Script(["x"]))
    assert server.http.get("/api/tags").json()["models"][0]["name"] == "m:latest"
    assert server.http.post("/api/show", json={"model": "m:latest"}).json()["capabilities"]
    assert server.http.get("/api/version").json()["version"]


def test_an_empty_question_only_asks_for_the_model(serve) -> None:
    answer = serve().http.post("/api/chat", json={"model": "m", "messages": []}).json()
    assert (answer["done"], answer["done_reason"]) == (True, "load")
