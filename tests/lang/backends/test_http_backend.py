"""Programs on servers: Ramet's own over a real socket, and others by their API's limits."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ramet.lang import (
    BackendError,
    HttpBackend,
    NodeFailedError,
    State,
    UnsupportedError,
    UsageError,
    assistant,
    connect,
    gen,
    program,
    regex,
    system,
    tool,
    user,
)
from ramet.lang.backends.dialects import OPENAI, RAMET, VLLM, Dialect
from ramet.lang.backends.http import HINT_UPDATES_PATH
from ramet.lang.backends.transport import Transport
from ramet.runtime.testing.scripted_model import Script


@program
def chat(s: State) -> tuple[str, str]:
    s += system("Be brief.")
    s += user("hello")
    s += assistant("I say: " + gen("a", max_tokens=12))
    s += user("again")
    return s["a"].value, s.gen("b", max_tokens=12).value


def test_a_ramet_server_gives_what_the_engine_gives(served, scripted_engine) -> None:
    url = served()
    backend = connect(url)
    assert backend.name.startswith("ramet:")
    over_http = chat.run(backend=backend, seed=5)
    in_process = chat.run(backend=scripted_engine(), seed=5)
    assert over_http.result == in_process.result
    usages = [call.usage for call in over_http.trace.calls]
    assert usages[1].cached_tokens > 0
    assert [u.prompt_tokens for u in usages] == [
        call.usage.prompt_tokens for call in in_process.trace.calls
    ]


def test_select_over_http_scores_as_the_engine_does(served, scripted_engine) -> None:
    @program
    def choose(s: State, method: str, as_chat: bool) -> dict[str, float]:
        if as_chat:
            s += user("colour?")
        else:
            s += "colour: "
        return s.select("c", ["red", "blue"], method=method).meta.choice_scores

    backend, engine = connect(served()), scripted_engine()
    for as_chat in (False, True):
        for method in ("token_length_normalized", "greedy_token_selection"):
            over_http = choose.run(method, as_chat, backend=backend).result
            assert over_http == pytest.approx(choose.run(method, as_chat, backend=engine).result)


def test_choices_share_their_prompt_over_http(served) -> None:
    @program
    def choose(s: State) -> None:
        s += "A long beginning of a prompt. " * 10
        s.select("c", ["red", "blue", "green"])

    usage = choose.run(backend=connect(served())).meta("c").usage
    assert usage.cached_tokens > usage.prompt_tokens * 0.6


def test_a_servers_refusal_fails_the_node_with_its_words(served) -> None:
    @program
    def long(s: State) -> None:
        s += "x" * 50_000
        s.gen("a", max_tokens=2)

    with pytest.raises(NodeFailedError, match="context") as caught:
        long.run(backend=connect(served()))
    assert isinstance(caught.value.__cause__, BackendError)
    assert caught.value.__cause__.http_status == 400


def test_cancelling_a_run_disconnects(served) -> None:
    @program
    def endless(s: State) -> None:
        s += "go"
        s.gen("a", max_tokens=7000)

    url = served(Script(["ab"], repeat=True))
    run = endless.start(backend=connect(url))
    next(run.text_iter("a"))
    run.cancel()
    with pytest.raises(Exception, match="cancelled"):
        run.wait()


Handler = Callable[[httpx.Request], httpx.Response]


def mocked(dialect: Dialect, handler: Handler) -> HttpBackend:
    transport = Transport("http://test", transport=httpx.MockTransport(handler))
    return HttpBackend(transport, dialect, model="m")


def sse(*events: Any) -> httpx.Response:
    lines = [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]
    return httpx.Response(200, text="".join(lines))


def chunk(text: str, reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


def test_hints_are_sent_to_ramet_and_to_no_other_server() -> None:
    bodies: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return sse(chunk("ok", "stop"))

    @program
    def two(s: State) -> None:
        s += user("x")
        s.gen("a", temperature=0.5, stop="\n")
        s += user("y")
        s.gen("b")

    for dialect in (RAMET, VLLM, OPENAI):
        bodies.clear()
        two.run(backend=mocked(dialect, handler), seed=1)
        assert ("ramet" in bodies[0]) == (dialect is RAMET)
        assert bodies[0]["temperature"] == 0.5
        assert bodies[0]["stop"] == ["\n"]
        assert bodies[1]["messages"] == [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": "ok"},
            {"role": "user", "content": "y"},
        ]
        if dialect is RAMET:
            assert bodies[0]["ramet"]["steps_to_next_use"] == 0
            assert bodies[0]["ramet"]["remaining_uses"] == 1


@pytest.mark.parametrize(
    ("body", "feature"),
    [
        (lambda s: s.append(user("x"), gen("a", top_k=3)), "top_k"),
        (lambda s: s.append(user("x"), gen("a", ignore_eos=True)), "ignore_eos"),
        (lambda s: s.append(user("x"), gen("a", regex="a+")), "regex"),
        (lambda s: s.append(user("x"), gen("a", regex("a") + "b")), "regex"),
        (lambda s: s.append(user("x"), gen("a", choices=["a", "b"])), "choice"),
        (lambda s: s.append(user("x"), gen("a", stop=list("abcde"))), "stops"),
        (lambda s: s.append(user("x"), assistant("so " + gen("a"))), "continue"),
        (lambda s: s.append(user("x")).select("a", ["x", "y"]), "log-probabilities"),
    ],
)
def test_what_openai_can_not_express_is_refused_before_the_call(body, feature) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise AssertionError("a call was made")

    @program
    def asks(s: State) -> None:
        body(s)

    with pytest.raises(UnsupportedError, match=feature):
        asks.run(backend=mocked(OPENAI, handler))


def test_a_salt_is_never_dropped() -> None:
    @program
    def simple(s: State) -> None:
        s += user("x")
        s.gen("a")

    def handler(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["cache_salt"] == "tenant"
        return sse(chunk("ok", "stop"))

    simple.run(backend=mocked(VLLM, handler), cache_salt="tenant")
    with pytest.raises(NodeFailedError, match="cache_salt"):
        simple.run(backend=mocked(OPENAI, handler), cache_salt="tenant")


def test_json_types_travel_as_response_format() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        form = json.loads(request.content)["response_format"]
        assert form["type"] == "json_schema"
        assert form["json_schema"]["schema"]["type"] == "array"
        return sse(chunk("[1, "), chunk("2]", "stop"))

    @program
    def numbers(s: State) -> list[int]:
        s += user("x")
        return s.gen("a", list[int]).value

    assert numbers.run(backend=mocked(OPENAI, handler)).result == [1, 2]


def test_select_by_echo() -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert body["echo"] is True
        text = body["prompt"]
        score = -0.5 if text.endswith("yes") else -2.0
        listed = {"text_offset": [0, 3], "token_logprobs": [None, score], "tokens": ["q: ", "?"]}
        return httpx.Response(200, json={"choices": [{"text": text, "logprobs": listed}]})

    @program
    def choose(s: State) -> dict[str, float]:
        s += "q: "
        return s.select("c", ["yes", "no"]).meta.choice_scores

    assert choose.run(backend=mocked(OPENAI, handler)).result == {"yes": -0.5, "no": -2.0}


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (httpx.Response(401, json={"error": {"message": "bad key"}}), "401: bad key"),
        (httpx.Response(500, text="<html>oops"), "500: <html>oops"),
        (httpx.Response(200, text="data: {nonsense\n\n"), "no JSON"),
        (httpx.Response(200, text="data: [1]\n\n"), "no object"),
        (httpx.Response(200, text='data: {"error": {"message": "died"}}\n\n'), "died"),
        (sse(chunk("half")), "finish_reason None"),
        (sse(chunk("x", "content_filter")), "content_filter"),
    ],
)
def test_broken_answers_are_errors_with_the_servers_words(answer, match) -> None:
    @program
    def simple(s: State) -> None:
        s += user("x")
        s.gen("a")

    with pytest.raises(NodeFailedError, match=match):
        simple.run(backend=mocked(OPENAI, lambda request: answer))


def test_a_busy_server_is_asked_again_a_bounded_number_of_times() -> None:
    tries: list[int] = []

    def handler(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        if len(tries) < 3:
            return httpx.Response(429, headers={"retry-after": "0.01"}, json={})
        return sse(chunk("ok", "stop"))

    @program
    def simple(s: State) -> None:
        s += user("x")
        s.gen("a")

    assert simple.run(backend=mocked(OPENAI, handler))["a"] == "ok"
    tries.clear()
    busy = httpx.Response(503, headers={"retry-after": "0.01"}, json={"error": "full"})
    with pytest.raises(NodeFailedError, match="503"):
        simple.run(backend=mocked(OPENAI, lambda request: tries.append(1) or busy))
    assert len(tries) == 3


def test_addresses_and_dialects_are_checked() -> None:
    with pytest.raises(UsageError):
        connect("localhost:8000")
    with pytest.raises(UsageError, match="ramet"):
        connect("http://x", dialect="other")
    with pytest.raises(BackendError, match=r"127\.0\.0\.1:9"):
        connect("http://127.0.0.1:9")
    assert connect("http://127.0.0.1:9/v1", dialect="openai").name == "openai:http://127.0.0.1:9"


def test_every_field_of_a_hint_is_one_that_the_server_knows() -> None:
    from ramet.runtime.api.request import ProgramHint
    from ramet.runtime.server.protocol.shared_fields import RametFields

    hints = set(RametFields.model_fields) - {"complete", "landing"}
    assert {field.name for field in dataclasses.fields(ProgramHint)} == hints


def test_an_agent_runs_over_http() -> None:
    @tool
    def double(n: int) -> int:
        """Doubles."""
        return 2 * n

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == HINT_UPDATES_PATH:
            return httpx.Response(200, json={})
        body = json.loads(request.content)
        assert body["response_format"]["type"] == "json_schema"
        assert body["ramet"]["tool"] == "double"
        if "double: 8" in body["messages"][-1]["content"]:
            return sse(chunk('{"answer": "it is 8"}', "stop"))
        return sse(chunk('{"tool_calls": [{"name": "double", "arguments": {"n": 4}}]}', "stop"))

    @program
    def agent(s: State) -> str:
        s.user("Twice four?")
        return s.tools([double]).value

    assert agent.run(backend=mocked(RAMET, handler)).result == "it is 8"
