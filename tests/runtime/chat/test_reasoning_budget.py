"""Bounded reasoning: exactly as without a bound until it is reached, and the same counts."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import httpx
import pytest

from ramet.runtime.testing.scripted_model import Script

THOUGHT = ["Two", " and", " two", " make", " four"]


@pytest.fixture
def thinker(serve):
    """A server whose model thinks five tokens long, unless it is cut."""
    return serve(
        Script(["Cut."], when="\n</think>"),
        Script([*THOUGHT, "</think>", "\n", "Four."], when="assistant\n<think>\n"),
        reasoning_format="think",
    )


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("budget", range(1, 9))
def test_reasoning_has_at_most_as_many_tokens(thinker, text_of, budget, streamed):
    fields = {"thinking_token_budget": budget, "max_tokens": 200}
    cut = "".join(THOUGHT[:budget])
    if streamed:
        chunks = thinker.chat_stream(**fields, stream_options={"include_usage": True})
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        reasoning = "".join(delta.get("reasoning_content", "") for delta in deltas)
        text, usage = text_of(chunks), chunks[-1]["usage"]
    else:
        answer = thinker.chat(**fields).json()
        message = answer["choices"][0]["message"]
        reasoning, text = message["reasoning_content"], message["content"]
        usage = answer["usage"]
    if budget <= len(THOUGHT):
        assert (reasoning, text) == (cut, "Cut.")
    else:
        assert (reasoning, text) == ("".join(THOUGHT), "Four.")
    plain = thinker.chat("hi", reasoning_effort="none", max_tokens=1).json()["usage"]
    assert usage["prompt_tokens"] == plain["prompt_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"]


def test_choices_are_bounded_each(thinker):
    answer = thinker.chat(thinking_token_budget=3, n=3).json()
    for choice in answer["choices"]:
        assert choice["message"]["reasoning_content"] == "Two and two"
        assert choice["message"]["content"] == "Cut."
        assert choice["finish_reason"] == "stop"


def test_the_whole_call_keeps_to_its_limit(thinker):
    for limit in range(1, 40):
        answer = thinker.chat(thinking_token_budget=3, max_tokens=limit)
        if answer.status_code == 400:
            assert "room" in answer.json()["error"]["message"]
            continue
        assert answer.json()["usage"]["completion_tokens"] <= limit
    assert answer.status_code == 200


def test_a_format_holds_for_what_comes_behind(thinker):
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [7]}}}
    message = thinker.chat(thinking_token_budget=2, response_format=wanted).json()["choices"][0]
    assert message["message"]["reasoning_content"] == "Two and"
    assert message["message"]["content"] == "7"


def test_a_budget_of_a_model_that_does_not_reason_is_a_warning(serve):
    answer = serve(["x"]).chat(thinking_token_budget=2).json()
    assert answer["choices"][0]["message"]["content"] == "x"
    assert [warning["param"] for warning in answer["warnings"]] == ["thinking_token_budget"]


def test_the_deadline_is_that_of_reasoning_and_answer_together(serve):
    server = serve(
        Script(["word "], repeat=True),
        reasoning_format="think",
        model_options={"step_delay_s": 0.002},
    )
    seen = []
    submit = server.engine.submit

    def noting(request):
        seen.append(request.deadline_s)
        return submit(request)

    server.engine.submit = noting
    answer = server.chat(thinking_token_budget=5, max_tokens=4000, deadline_s=3.0)
    assert answer.status_code == 504
    first, second = seen
    assert first == 3.0
    assert second < 3.0


class Compiling:
    """Stands for an engine whose constraints are never ready."""

    def __init__(self, server):
        self.works = []
        server.engine.compile = self

    def __call__(self, constraint, scope):
        self.works.append(Future())
        return self.works[-1]

    @property
    def is_given_up(self):
        return bool(self.works) and all(work.cancelled() for work in self.works)


FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [7]}}}


def test_a_deadline_holds_while_the_answers_format_is_compiled(thinker, wait_until):
    compiling = Compiling(thinker)
    answer = thinker.chat(thinking_token_budget=2, response_format=FORMAT, deadline_s=0.1)
    assert answer.status_code == 504
    assert compiling.is_given_up
    wait_until(lambda: thinker.num_live() == 0)


@pytest.mark.parametrize("how", ["aborted", "left"])
def test_an_end_holds_while_the_answers_format_is_compiled(thinker, wait_until, how):
    compiling = Compiling(thinker)
    fields = {"thinking_token_budget": 2, "response_format": FORMAT}
    with ThreadPoolExecutor(1) as threads:
        if how == "left":
            body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
            with pytest.raises(httpx.ReadTimeout):
                thinker.http.post("/v1/chat/completions", json=body, timeout=0.3)
        else:
            call = threads.submit(thinker.chat, **fields, request_id="mine")
            wait_until(lambda: compiling.works)
            assert thinker.http.post("/v1/abort", json={"request_id": "mine"}).status_code == 200
            assert call.result(10).status_code == 499
    wait_until(lambda: compiling.is_given_up)
    wait_until(lambda: thinker.num_live() == 0)


def test_a_deadline_counts_while_the_answers_format_is_compiled(thinker):
    seen, submit = [], thinker.engine.submit

    def noting(request):
        seen.append(request.deadline_s)
        return submit(request)

    def compile_slowly(constraint, scope):
        work = Future()
        threading.Timer(0.05, work.set_result, [None]).start()
        return work

    thinker.engine.submit, thinker.engine.compile = noting, compile_slowly
    fields = {"thinking_token_budget": 2, "response_format": FORMAT}
    assert thinker.chat(**fields, deadline_s=20.0).status_code == 200
    assert max(seen) < 20.0
    assert thinker.chat(**fields).status_code == 200
    assert seen[-2:] == [None, None]
