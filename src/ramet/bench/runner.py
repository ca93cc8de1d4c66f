"""Runs a workload against a target."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from ramet.bench.job import Job, Messages, Tokens, Workload
from ramet.bench.targets import Outcome, Target


@dataclass(frozen=True, slots=True)
class WorkloadRun:
    """The outcomes of a workload's jobs, in order, and the total time in seconds."""

    workload: Workload
    target: str
    outcomes: tuple[Outcome, ...]
    wall_s: float


async def run_workload(
    workload: Workload, target: Target, on_end: Callable[[Outcome], None] = lambda _: None
) -> WorkloadRun:
    """Sends all jobs at the workload's pace and waits for them.

    Args:
        on_end: is called whenever a job has ended.
    """
    slots = nullcontext() if workload.is_open_loop else asyncio.Semaphore(workload.pace.concurrency)
    tasks: list[asyncio.Task[tuple[Tokens | Messages, Outcome]]] = []
    continued = {job.after for job in workload.jobs}

    async def one(index: int, job: Job, at: float) -> tuple[Tokens | Messages, Outcome]:
        prompt = job.prompt
        if job.after is not None:
            earlier, outcome = await tasks[job.after]
            if outcome.error is not None:
                return prompt, _unsent(on_end)
            prompt = outcome.continue_with(earlier, job)
            await asyncio.sleep(job.delay_s)
        await asyncio.sleep(max(0.0, start + at - time.perf_counter()))
        async with slots:
            sent_s = time.perf_counter() - start
            outcome = await target.send(job, prompt, want_token_ids=index in continued)
            outcome.sent_s = sent_s
        on_end(outcome)
        return prompt, outcome

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for index, (job, at) in enumerate(zip(workload.jobs, workload.arrivals(), strict=True)):
            tasks.append(group.create_task(one(index, job, at)))
    outcomes = tuple(task.result()[1] for task in tasks)
    return WorkloadRun(workload, target.name, outcomes, time.perf_counter() - start)


def _unsent(on_end: Callable[[Outcome], None]) -> Outcome:
    outcome = Outcome(error="not sent: the request that it continues failed")
    on_end(outcome)
    return outcome
