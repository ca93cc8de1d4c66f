"""Measures the host's work between two forward passes: its share, and CPU time a step.

    python benchmarks/serving/between_steps.py

Greedy loads on the default model, without HTTP. All that a step does outside of the threads'
program counts: scheduling, drafts, the batch, its records, tokens to text, events that wait for
no pass. While it is done the other threads have nothing to do. CPU time is of the engine's thread
alone, so other work on the machine hardly changes it.
"""

from __future__ import annotations

import argparse
import queue
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ramet.runtime.api.events import Event, Failed, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.load import open_model
from ramet.runtime.tokenizer import read_tokenizer

SWITCH_S = 0.0005
Prompt = tuple[int, ...]


class TimedTeam:
    """A runner's team; notes when it began and ended, by the wall and by its thread's CPU time."""

    def __init__(self, team: Any) -> None:
        self._team = team
        self.passes: list[tuple[float, float, float, float]] = []

    def run(self, *args: Any) -> None:
        began = time.perf_counter(), time.thread_time()
        self._team.run(*args)
        self.passes.append((*began, time.perf_counter(), time.thread_time()))

    def close(self) -> None:
        self._team.close()


def shared_prefix(rng: np.random.Generator) -> tuple[list[Prompt], int, int]:
    """32 prompts that share 1,024 tokens, 8 at once, 32 tokens out."""
    prefix = rng.integers(1000, 40000, 1024).tolist()
    return [(*prefix, *rng.integers(1000, 40000, 32).tolist()) for _ in range(32)], 8, 32


def streams(count: int) -> Callable[[np.random.Generator], tuple[list[Prompt], int, int]]:
    """As many prompts of 128 tokens, all at once, 128 tokens out."""

    def make(rng: np.random.Generator) -> tuple[list[Prompt], int, int]:
        return [tuple(rng.integers(1000, 40000, 128).tolist()) for _ in range(count)], count, 128

    return make


LOADS = {"shared prefix": shared_prefix, "16 streams": streams(16), "64 streams": streams(64)}


def run(engine: Engine, prompts: list[Prompt], num_at_once: int, num_out: int) -> None:
    """Runs a load to its end."""
    params = SamplingParams(temperature=0, max_tokens=num_out, min_tokens=num_out, ignore_eos=True)
    ends: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def push(event: Event) -> None:
        if isinstance(event, Finished | Failed):
            ends.put(event)

    def submit(prompt: Prompt) -> None:
        engine.submit_to(Request(prompt_token_ids=prompt, params=params), push)

    waiting = iter(prompts)
    for _ in range(num_at_once):
        submit(next(waiting))
    for _ in prompts:
        if isinstance(end := ends.get(), Failed):
            raise end.error
        if (prompt := next(waiting, None)) is not None:
            submit(prompt)


def measure(team: TimedTeam, engine: Engine, load: Any, seed: int) -> tuple[float, float]:
    """(share of the time between passes, median CPU time in microseconds between two)."""
    work = load(np.random.default_rng(seed))
    team.passes.clear()
    run(engine, *work)
    passes = list(team.passes)
    gaps = [after[0] - before[2] for before, after in pairwise(passes)]
    busy = [after[1] - before[3] for before, after in pairwise(passes)]
    return sum(gaps) / (passes[-1][2] - passes[0][0]), 1e6 * statistics.median(busy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_S)
    file = open_model("smollm2")
    tokenizer = read_tokenizer(file)
    for max_draft_len in (16, 0):
        runner = CpuRunner(file)
        team = TimedTeam(runner._team)
        runner._team = team  # type: ignore[assignment]
        config = EngineConfig(max_draft_len=max_draft_len)
        with Engine(runner, tokenizer, config, timer=time.perf_counter) as engine:
            run(engine, *shared_prefix(np.random.default_rng(0)))
            for name, load in LOADS.items():
                found = [measure(team, engine, load, seed) for seed in range(1, 1 + options.repeat)]
                share, cpu = (statistics.median(each) for each in zip(*found, strict=True))
                print(
                    f"{name}, drafts of up to {max_draft_len}: {share:.1%} of the time between "
                    f"passes, {cpu:.0f} us of CPU time",
                    flush=True,
                )


if __name__ == "__main__":
    main()
