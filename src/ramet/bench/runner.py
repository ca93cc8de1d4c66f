"""Runs a workload against a target and summarises it."""

from __future__ import annotations

import asyncio
import statistics
import time
from dataclasses import asdict, dataclass

from ramet.bench.targets import Outcome, Target
from ramet.bench.workloads import Job, Workload


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one run, in seconds; ``tpot`` is the time per output token after the first.

    ``tokens_computed`` are prompt tokens that no cache had; ``tokens_distinct`` is the least that
    any prefix cache must compute.
    """

    target: str
    scenario: str
    requests: int
    errors: int
    wall_s: float
    output_tok_s: float
    prompt_tokens: int
    output_tokens: int
    tokens_cached: int
    tokens_computed: int
    tokens_distinct: int
    ttft_p50_s: float
    ttft_p95_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p95_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    e2e_p99_s: float
    first_error: str | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def percentile(values: list[float], q: float) -> float:
    """The q-th percentile by nearest rank; 0 for no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(q / 100 * (len(ordered) - 1)))]


async def run_workload(workload: Workload, target: Target) -> Summary:
    """Sends all jobs and waits for them: an open loop at the workload's rate, or a closed loop with
    its concurrency."""
    at_once = workload.concurrency if workload.rate is None else len(workload.jobs)
    slots = asyncio.Semaphore(max(1, at_once))
    tasks: list[asyncio.Task[tuple[tuple[int, ...], Outcome]]] = []
    continued = {job.after for job in workload.jobs}

    async def one(index: int, job: Job, at: float) -> tuple[tuple[int, ...], Outcome]:
        prompt = job.prompt
        if job.after is not None:
            said, outcome = await tasks[job.after]
            prompt = said + outcome.output_token_ids + job.prompt
        await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
        async with slots:
            return prompt, await target.send(job, prompt, want_token_ids=index in continued)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for index, (job, at) in enumerate(zip(workload.jobs, workload.arrivals(), strict=True)):
            tasks.append(group.create_task(one(index, job, at)))
    outcomes = [task.result()[1] for task in tasks]
    return summarise(workload, target.name, outcomes, time.perf_counter() - start)


def summarise(workload: Workload, target: str, outcomes: list[Outcome], wall_s: float) -> Summary:
    good = [outcome for outcome in outcomes if outcome.error is None]
    ttft = [outcome.ttft_s for outcome in good]
    total = [outcome.total_s for outcome in good]
    tpot = [
        (outcome.total_s - outcome.ttft_s) / (outcome.num_output_tokens - 1)
        for outcome in good
        if outcome.num_output_tokens > 1
    ]
    num_prompt = sum(outcome.num_prompt_tokens for outcome in good)
    num_output = sum(outcome.num_output_tokens for outcome in good)
    num_cached = sum(outcome.num_cached_tokens for outcome in good)
    return Summary(
        target=target,
        scenario=workload.name,
        requests=len(outcomes),
        errors=len(outcomes) - len(good),
        wall_s=wall_s,
        output_tok_s=num_output / wall_s,
        prompt_tokens=num_prompt,
        output_tokens=num_output,
        tokens_cached=num_cached,
        tokens_computed=num_prompt - num_cached,
        tokens_distinct=workload.num_distinct_prompt_tokens(),
        ttft_p50_s=percentile(ttft, 50),
        ttft_p95_s=percentile(ttft, 95),
        ttft_p99_s=percentile(ttft, 99),
        tpot_p50_s=percentile(tpot, 50),
        tpot_p95_s=percentile(tpot, 95),
        e2e_p50_s=percentile(total, 50),
        e2e_p95_s=percentile(total, 95),
        e2e_p99_s=percentile(total, 99),
        first_error=next((o.error for o in outcomes if o.error is not None), None),
    )


def median_ratio(ours: list[Summary], theirs: list[Summary], figure: str) -> float | None:
    """The median over repeats of ours / theirs for one figure; None if theirs are all 0."""
    ratios = [
        getattr(a, figure) / getattr(b, figure)
        for a, b in zip(ours, theirs, strict=True)
        if getattr(b, figure)
    ]
    return statistics.median(ratios) if ratios else None
