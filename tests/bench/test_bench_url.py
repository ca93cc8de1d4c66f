"""``ramet bench`` over HTTP: what it counts, what it refuses to count, and what it prints."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator

import httpx
import pytest
from typer.testing import CliRunner

from ramet.bench.runner import run_workload
from ramet.bench.targets import EngineTarget, Outcome, UrlTarget
from ramet.bench.workloads import PERSON_SCHEMA, SCENARIOS, Job, Shape, Workload
from ramet.cli import app
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.server import RunningServer, running_server, scripted_server

SMALL = Shape(
    groups=2, per_group=4, prefix_len=48, suffix_len=8, output_len=6, turns=3, concurrency=4
)
COUNTS = ("requests", "errors", "prompt_tokens", "output_tokens", "tokens_distinct")


@pytest.mark.parametrize("name", ["shared-prefix", "multi-turn", "free"])
async def test_a_server_is_counted_as_its_engine_is(name: str) -> None:
    workload = SCENARIOS[name]("0", SMALL)
    ascii_jobs = (
        dataclasses.replace(job, prompt=tuple(32 + token % 64 for token in job.prompt))
        for job in workload.jobs
    )
    workload = dataclasses.replace(workload, jobs=tuple(ascii_jobs))
    with scripted_engine() as engine:
        there = await run_workload(workload, EngineTarget(engine))
    with scripted_server([]) as server:
        target = UrlTarget(server.url, "m")
        here = await run_workload(workload, target)
        await target.close()
    assert here.errors == 0, here.first_error
    for count in COUNTS:
        assert getattr(here, count) == getattr(there, count)
    assert here.tokens_computed + here.tokens_cached == here.prompt_tokens
    assert here.tokens_computed == pytest.approx(here.tokens_distinct, rel=0.02)
    assert 0 < here.ttft_p50_s <= here.e2e_p50_s <= here.e2e_p99_s


USAGE = {"prompt_tokens": 4, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}


async def answered(*events: object, job: Job, want_token_ids: bool = False) -> Outcome:
    """What becomes of a job whose server streams these."""
    text = "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n"
    target = UrlTarget("http://server", "m")
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=text))
    target.client = httpx.AsyncClient(base_url="http://server", transport=transport)
    outcome = await target.send(job, job.prompt, want_token_ids=want_token_ids)
    await target.close()
    return outcome


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
async def test_an_answer_that_measures_nothing_is_an_error(events, want_token_ids, error) -> None:
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


class Held:
    """Answers nobody until so many are waiting."""

    name = "held"

    def __init__(self, num_wanted: int) -> None:
        self.num_waiting = self.num_most = 0
        self.num_wanted = num_wanted
        self.released = asyncio.Event()

    async def send(self, job: Job, prompt: tuple[int, ...], *, want_token_ids: bool) -> Outcome:
        self.num_waiting += 1
        self.num_most = max(self.num_most, self.num_waiting)
        if self.num_waiting == self.num_wanted:
            self.released.set()
        await self.released.wait()
        self.num_waiting -= 1
        return Outcome(num_prompt_tokens=1, num_output_tokens=1)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(("rate", "at_once"), [(None, 3), (5000.0, 20)])
async def test_jobs_that_come_at_a_rate_wait_for_no_others(rate, at_once) -> None:
    jobs = tuple(Job((number,), 1) for number in range(20))
    held = Held(at_once)
    summary = await run_workload(Workload("w", jobs, concurrency=3, rate=rate), held)
    assert summary.requests == 20
    assert held.num_most == at_once


@pytest.mark.parametrize("option", ["--rate", "--concurrency", "--groups", "--repeat"])
def test_a_number_that_paces_nothing_is_refused_by_its_option(option: str) -> None:
    result = CliRunner().invoke(app, ["bench", "shared-prefix", option, "0"])
    assert result.exit_code == 2
    assert option in result.output


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")
    config = EngineConfig(cache_bytes=64 << 20)
    with Engine.from_model("smollm2", config) as engine, running_server(engine) as server:
        yield server


SHAPE = {"groups": 2, "per-group": 2, "prefix-len": 40, "suffix-len": 5, "output-len": 4}
WORDS = ["--repeat=2", "--concurrency=2", *(f"--{name}={size}" for name, size in SHAPE.items())]


@pytest.mark.model
def test_two_servers_get_the_same_work_in_turn(server: RunningServer) -> None:
    words = ["bench", "shared-prefix,a512", "--url", server.url, "--compare", server.url, *WORDS]
    result = CliRunner().invoke(app, [*words, "--json", "--seed", "json"])
    assert result.exit_code == 0, result.output
    *lines, last = map(json.loads, result.stdout.splitlines())
    assert [(line["repeat"], line["scenario"]) for line in lines[::2]] == [
        (0, "shared-prefix"), (0, "a512"), (1, "shared-prefix"), (1, "a512")]  # fmt: skip
    for first, second in zip(lines[::2], lines[1::2], strict=True):
        for count in COUNTS:
            assert first[count] == second[count]
        # Here both are one server: it has computed all of it but each prompt's last token.
        assert second["tokens_computed"] == second["requests"]
    assert lines[0]["tokens_computed"] == lines[0]["tokens_distinct"] == 2 * (40 + 2 * 5)
    assert lines[0]["prompt_tokens"] == 4 * 45
    assert lines[0]["output_tokens"] == 4 * 4
    assert set(last["ratios"]) == {"shared-prefix", "a512"}
    assert last["ratios"]["a512"]["tokens_computed"] == 512


@pytest.mark.model
def test_tables_fit_a_terminal(server: RunningServer) -> None:
    words = ["bench", "a,json", "--url", server.url, "--compare", server.url, "--seed", "table"]
    result = CliRunner().invoke(app, [*words, *WORDS], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    assert "…" not in result.output
    lines = [each for each in result.output.splitlines() if "prompt computed" in each]
    assert len(lines) == 2
    assert [cell.strip() for cell in lines[0].split("│")[2:5]] == ["128", "1", "128.00"]
