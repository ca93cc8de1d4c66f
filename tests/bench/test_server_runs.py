"""A run over HTTP: what it counts, what it refuses to count, and what it sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ramet.bench.job import Job, Message, Messages, Tokens
from ramet.bench.runner import run_workload
from ramet.bench.summary import Summary, summarise
from ramet.bench.targets import EngineTarget, Outcome, ServerTarget, Target
from ramet.bench.workloads import Load
from ramet.bench.workloads.random_tokens import PERSON_SCHEMA, FreeText, MultiTurn, SharedPrefix
from ramet.lang.base.errors import UsageError
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.server import scripted_server

ASCII = range(32, 96)
COUNTS = ("requests", "errors", "prompt_tokens", "output_tokens", "tokens_least")
SMALL: tuple[Load, ...] = (
    SharedPrefix(groups=2, per_group=4, prefix_len=48, suffix_len=8, output_len=6),
    MultiTurn(chats=2, turns=3, prefix_len=48, suffix_len=8, output_len=6),
    FreeText(requests=4, prompt_len=8, output_len=6),
)


async def run(load: Load, target: Target) -> Summary:
    workload = load.build("0", ASCII)
    result = await run_workload(workload, target)
    await target.close()
    return summarise(workload, target.name, result.outcomes, result.wall_s)


@pytest.mark.parametrize("load", SMALL, ids=lambda load: load.name)
async def test_a_server_is_counted_as_its_engine_is(load: Load) -> None:
    with scripted_engine() as engine:
        there = await run(load, EngineTarget(engine))
    with scripted_server([]) as server:
        here = await run(load, ServerTarget(f"{server.url}/v1/", "m"))
    assert here.errors == 0, here.first_error
    for count in COUNTS:
        assert getattr(here, count) == getattr(there, count)
    assert here.tokens_least is not None
    assert here.tokens_computed == pytest.approx(here.tokens_least, rel=0.02)


async def test_a_server_without_a_cache_computes_everything() -> None:
    with scripted_server([]) as server:
        summary = await run(SMALL[0], ServerTarget(server.url, "m", use_cache=False))
    assert (summary.errors, summary.tokens_cached) == (0, 0)


USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
Answer = Callable[[httpx.Request], httpx.Response]


def target_with(answer: Answer, **options: Any) -> ServerTarget:
    target = ServerTarget("http://server", **options)
    target.client = httpx.AsyncClient(
        base_url="http://server", transport=httpx.MockTransport(answer)
    )
    return target


def stream(*events: object) -> httpx.Response:
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in events)
    return httpx.Response(200, text=text + "data: [DONE]\n\n")


async def answered(
    *events: object, job: Job, prompt: Tokens | Messages | None = None, want_token_ids: bool = False
) -> Outcome:
    """The outcome of a job whose server streams these events."""
    target = target_with(lambda _: stream(*events), model="m")
    prompt = job.prompt if prompt is None else prompt
    return await target.send(job, prompt, want_token_ids=want_token_ids)


@pytest.mark.parametrize(
    ("events", "want_token_ids", "error"),
    [
        ([{"choices": [{"text": "abc"}]}, {"choices": [], "usage": USAGE}], False, None),
        ([{"choices": [{"text": "abc"}]}], False, "without usage"),
        ([{"usage": {**USAGE, "completion_tokens": 2}}], False, "2 tokens, not the 3"),
        ([{"choices": [{"text": "abc"}]}, {"usage": USAGE}], True, "no token ids"),
        ([{"error": {"message": "died"}}], False, "died"),
    ],
)
async def test_an_answer_that_measures_nothing_is_an_error(
    events: list[object], want_token_ids: bool, error: str | None
) -> None:
    outcome = await answered(*events, job=Job((1, 2, 3, 4), 3), want_token_ids=want_token_ids)
    if error is None:
        assert outcome.error is None
        assert (outcome.num_prompt_tokens, outcome.num_cached_tokens) == (4, 2)
        assert 0 < outcome.ttft_s <= outcome.total_s
    else:
        assert error in (outcome.error or "")


async def test_a_schema_decides_how_long_an_answer_is() -> None:
    job = Job((1, 2, 3, 4), 200, PERSON_SCHEMA)
    assert (await answered({"usage": USAGE}, job=job)).error is None


CHAT = (Message("system", "Be brief."), Message("user", "Hello?"))


async def test_the_role_of_a_chat_is_no_output() -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    text = {"choices": [{"delta": {"content": "Hi"}}]}
    outcome = await answered(role, text, {"usage": USAGE}, job=Job(CHAT, 8))
    assert len(outcome.event_times) == 1
    assert outcome.continue_with(CHAT, Job((Message("user", "Who?"),), 8)) == (
        *CHAT, Message("assistant", "Hi"), Message("user", "Who?"))  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "path", "key", "value"),
    [
        (None, "/v1/chat/completions", "messages", [each._asdict() for each in CHAT]),
        ("completions", "/v1/completions", "prompt",
         "System: Be brief.\n\nUser: Hello?\n\nAssistant:"),
    ],
)  # fmt: skip
async def test_chats_go_to_the_endpoint_that_was_chosen(endpoint, path, key, value) -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return stream({"usage": USAGE})

    target = target_with(answer, model="m", endpoint=endpoint)
    outcome = await target.send(Job(CHAT, 8), CHAT, want_token_ids=True)
    assert outcome.error is None
    body = json.loads(seen[0].content)
    assert seen[0].url.path == path
    assert body[key] == value
    assert "ignore_eos" not in body


def test_an_address_without_a_scheme_is_refused_with_advice() -> None:
    with pytest.raises(UsageError, match=r"try http://127\.0\.0\.1:8000"):
        ServerTarget("127.0.0.1:8000")


async def test_a_server_that_is_not_there_fails_before_any_load() -> None:
    target = ServerTarget("http://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"no server answers at http://127\.0\.0\.1:9"):
        await target.check()


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (httpx.Response(401, text="who are you?"), "401 who are you"),
        (httpx.Response(200, json={"data": []}), "lists no model"),
    ],
)
async def test_a_server_that_lists_no_model_is_refused(answer, problem) -> None:
    target = target_with(lambda _: answer)
    with pytest.raises(UsageError, match=problem):
        await target.check()


async def test_the_first_model_is_the_default() -> None:
    target = target_with(lambda _: httpx.Response(200, json={"data": [{"id": "one"}]}))
    await target.check()
    assert target.model == "one"
