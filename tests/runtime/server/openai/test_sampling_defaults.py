"""Calls that set no sampling parameters get the model's, and programs always set their own."""

from __future__ import annotations

import pytest

from ramet import connect, program
from ramet.runtime.engine import Engine
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.testing.server import running_server

GREEDY = {"temperature": 0.0, "top_k": 1}


@pytest.fixture
def server():
    tokenizer = scripted_tokenizer("a", "b")
    model = ScriptedModel(tokenizer, [Script(["a"], repeat=True)])
    with (
        Engine(model, tokenizer, model_name="m", sampling_defaults=GREEDY) as engine,
        running_server(engine) as running,
    ):
        seen = []
        submit = engine.submit
        engine.submit = lambda request: (seen.append(request.params), submit(request))[1]
        yield running, seen


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"model": "m", "max_tokens": 2, "messages": [
            {"role": "user", "content": "x"}]}),
    ],
)  # fmt: skip
def test_every_api_takes_the_models_defaults(server, path: str, body: dict) -> None:
    running, seen = server
    assert running.http.post(path, json=body).status_code == 200
    assert running.http.post(path, json={**body, "temperature": 0.5}).status_code == 200
    first, second = seen
    assert (first.temperature, first.top_k) == (0.0, 1)
    assert (second.temperature, second.top_k) == (0.5, 1)


def test_models_say_their_defaults(server) -> None:
    (card,) = server[0].http.get("/v1/models").json()["data"]
    assert card["default_sampling_params"] == GREEDY


@program
def ask(s):
    s.user("x")
    s.gen("y", max_tokens=2)


def test_a_program_has_the_parameters_that_it_states(server) -> None:
    running, seen = server
    ask.run(backend=connect(running.url))
    assert {(each.temperature, each.top_k) for each in seen} == {(1.0, 0)}
