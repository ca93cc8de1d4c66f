"""Compares two ways of a CPU to multiply (``--cpu-path``), in turns in one process.

    python benchmarks/serving/cpu_paths.py [PATH [PATH]]

By default the fastest path of the machine against the next one. Greedy loads without HTTP and
without drafts on the default model. A ratio is of CPU time of all threads, the least of several
rounds, so other work on the machine changes little; wall time comes second. Prompts are new in
each round, and both paths must give the same tokens.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import time

import numpy as np

from ramet.kernels.cpu_support.features import host_name, supported_dot_paths
from ramet.runtime.api.events import Event, Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig

Prompts = list[tuple[int, ...]]


def random_tokens(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    return tuple(rng.integers(1000, 40000, count).tolist())


def separate(rng: np.random.Generator, count: int, num_tokens: int) -> Prompts:
    return [random_tokens(rng, num_tokens) for _ in range(count)]


def shared(rng: np.random.Generator, count: int, num_tokens: int) -> Prompts:
    """Prompts with all but 32 tokens in common."""
    prefix = random_tokens(rng, num_tokens - 32)
    return [(*prefix, *random_tokens(rng, 32)) for _ in range(count)]


LOADS = {
    "prompt of 512": (separate, 1, 512, 1),
    "prompt of 2,048": (separate, 1, 2048, 1),
    "one stream": (separate, 1, 16, 64),
    "8 streams of 128": (separate, 8, 128, 48),
    "16 streams of 128": (separate, 16, 128, 48),
    "64 streams of 128": (separate, 64, 128, 32),
    "16 sharing 1,024": (shared, 16, 1056, 32),
}
"""Prompts: how they are made, how many, tokens of each; tokens out."""


def generate(engine: Engine, prompts: Prompts, num_out: int) -> list[list[int]]:
    """Every prompt's tokens."""
    params = SamplingParams(temperature=0, max_tokens=num_out, min_tokens=num_out, ignore_eos=True)
    ends: queue.SimpleQueue[Event] = queue.SimpleQueue()
    tokens: dict[int, list[int]] = {}

    def submit(index: int, prompt: tuple[int, ...]) -> None:
        found = tokens.setdefault(index, [])

        def push(event: Event) -> None:
            if isinstance(event, TextDelta):
                found.extend(token.token_id for token in event.tokens)
            if isinstance(event, Finished | Failed):
                ends.put(event)

        engine.submit_to(Request(prompt_token_ids=prompt, params=params), push)

    for index, prompt in enumerate(prompts):
        submit(index, prompt)
    for _ in prompts:
        event = ends.get(timeout=600)
        if isinstance(event, Failed):
            raise event.error
    return [tokens[index] for index in range(len(prompts))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", metavar="PATH")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    paths = options.paths or list(supported_dot_paths()[:2])
    if len(paths) != 2:
        parser.error("two paths are compared")
    print(f"{host_name()}: {paths[1]} over {paths[0]}\n")
    print("| load | CPU time | wall time |\n|---|---|---|")
    with contextlib.ExitStack() as stack:
        engines = [
            stack.enter_context(
                Engine.from_model(options.model, EngineConfig(cpu_path=path, max_draft_len=0))
            )
            for path in paths
        ]
        for name, (make, count, num_tokens, num_out) in LOADS.items():
            rng = np.random.default_rng(0)
            times = []
            for _ in range(options.rounds):
                prompts = make(rng, count, num_tokens)
                results, row = [], []
                for engine in engines:
                    began = time.process_time(), time.perf_counter()
                    results.append(generate(engine, prompts, num_out))
                    row.append((time.process_time() - began[0], time.perf_counter() - began[1]))
                assert results[0] == results[1], f"{name}: the paths give different tokens"
                times.append(row)
            least = np.min(times, axis=0)
            ratios = least[1] / least[0]
            print(f"| {name} | {ratios[0]:.2f} | {ratios[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
