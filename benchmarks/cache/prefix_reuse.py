"""Measures how much of the shared prefixes of requests is computed once.

    python benchmarks/cache/prefix_reuse.py shared-prefix
    python benchmarks/cache/prefix_reuse.py multi-turn

Runs a load twice, with the cache and with a salt of its own for each request, and prints the tokens
that the model read over the least it had to: every distinct prefix of the requests' tokens once.
The requests arrive all at once (shared-prefix), or each conversation's turns in order and the
conversations together (multi-turn).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig

Salt = Callable[[], str]
Scenario = Callable[[Engine, Salt], Awaitable[list[list[int]]]]
"""Runs its load; returns the tokens that the model had to read, a list a request."""


def distinct_prefixes(sequences: Iterable[list[int]]) -> int:
    """The number of different non-empty prefixes: the nodes of the sequences' trie."""
    children: dict[tuple[int, int], int] = {}
    for sequence in sequences:
        node = 0
        for token_id in sequence:
            node = children.setdefault((node, token_id), len(children) + 1)
    return len(children)


async def complete(engine: Engine, prompt: list[int], num_tokens: int, salt: str) -> list[int]:
    """A greedy completion of exactly ``num_tokens`` tokens."""
    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    request = Request(prompt_token_ids=tuple(prompt), params=params, cache_salt=salt)
    return (await engine.submit(request)).token_ids


async def shared_prefix(engine: Engine, salt: Salt) -> list[list[int]]:
    """Sixteen requests at once: 512 tokens in common, 32 of their own, 16 generated."""
    rng = random.Random(0)
    shared = _tokens(rng, 512)
    prompts = [shared + _tokens(rng, 32) for _ in range(16)]
    outputs = await asyncio.gather(*(complete(engine, p, 16, salt()) for p in prompts))
    return [p + output[:-1] for p, output in zip(prompts, outputs, strict=True)]


async def multi_turn(engine: Engine, salt: Salt) -> list[list[int]]:
    """Eight conversations of five turns under one system prompt of 128 tokens."""
    rng = random.Random(1)
    system = _tokens(rng, 128)
    read: list[list[int]] = []

    async def talk(seed: int) -> None:
        own = random.Random(seed)
        history = list(system)
        for _ in range(5):
            history += _tokens(own, own.randint(20, 60))
            output = await complete(engine, history, 24, salt())
            read.append(history + output[:-1])
            history += output

    await asyncio.gather(*(talk(seed) for seed in range(8)))
    return read


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(200, 40_000) for _ in range(count)]


SCENARIOS: dict[str, Scenario] = {"shared-prefix": shared_prefix, "multi-turn": multi_turn}


def measure(engine: Engine, scenario: Scenario, salt: Salt) -> tuple[float, float]:
    """(tokens read over the least possible with sharing, seconds)."""
    engine.clear_cache()
    before, start = engine.stats().num_computed_tokens, time.perf_counter()
    read = asyncio.run(scenario(engine, salt))
    seconds = time.perf_counter() - start
    computed = engine.stats().num_computed_tokens - before
    return computed / distinct_prefixes(read), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    scenario = SCENARIOS[options.scenario]
    with Engine.from_model(options.model, EngineConfig(cache_bytes=512 << 20)) as engine:
        shared, shared_s = measure(engine, scenario, lambda: "")
        numbers = iter(range(10**9))
        apart, apart_s = measure(engine, scenario, lambda: f"salt {next(numbers)}")
        print(f"tokens read, over the distinct ones: {shared:.3f} shared, {apart:.3f} apart")
        print(f"time apart over time shared: {apart_s / shared_s:.2f}")
        engine.check()


if __name__ == "__main__":
    main()
