"""Records the traces that ``eviction.py`` replays, on a real model.

    python benchmarks/cache/record_traces.py chats benchmarks/cache/traces/chats.trace.gz

chats: people who talk with one of six assistants, and think between their turns. programs: the
examples' ten programs with other questions, several at a time. bench: the loads of ``ramet bench
shared-prefix`` and ``ramet bench multi-turn``. ``ramet serve --record-trace`` records any other.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ramet.bench.runner import run_workload
from ramet.bench.targets import EngineTarget
from ramet.bench.workloads import ordinary_ids
from ramet.bench.workloads.random_tokens import MultiTurn, SharedPrefix
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig

EXAMPLES = Path(__file__).parents[2] / "examples"

# fmt: off
WORDS = (
    "bread", "rivers", "moons", "chess", "rust", "bees", "paper", "snow", "trains", "maps",
    "jazz", "stars", "Rome", "cheese", "volcanoes", "tea", "clocks", "bridges", "violins",
    "whales", "deserts", "markets", "ships", "winter", "gardens", "glass",
)
# fmt: on
RULES = (
    "Answer in the language of the question.",
    "Never give advice on medicine or law; name somebody who can.",
    "If a question is unclear, ask one question back, and only one.",
    "Use short sentences, and no lists unless you are asked for one.",
    "Say where a fact comes from when there is any doubt about it.",
    "Do not repeat what has been said in the conversation already.",
    "Prices are in euros, times in the time zone of the caller, distances in kilometres.",
    "Whoever is rude gets a calm answer, and is told so once.",
)


# -- chats -------------------------------------------------------------------------------------


async def chats(engine: Engine, num_chats: int, at_once: int) -> None:
    """Chats of one to eight turns under a system prompt each, some prompts more popular."""
    rng = random.Random(0)
    systems = [
        f"You are assistant number {number} of a library. "
        + " ".join(rng.choice(RULES) for _ in range(rng.randint(4, 24)))
        for number in range(6)
    ]
    gate = asyncio.Semaphore(at_once)

    async def chat(number: int) -> None:
        own = random.Random(number)
        popular = min(int(own.paretovariate(0.8)) - 1, len(systems) - 1)
        history = engine.tokenizer.encode(systems[popular])
        async with gate:
            for _ in range(min(1 + int(own.expovariate(0.4)), 8)):
                topics = " and ".join(own.sample(WORDS, own.randint(1, 5)))
                question = f"\nUser: What should I know about {topics}?\nAssistant:"
                history += engine.tokenizer.encode(question)
                params = SamplingParams(max_tokens=own.randint(16, 72), seed=number)
                request = Request(prompt_token_ids=tuple(history), params=params)
                history += (await engine.submit(request)).token_ids
                await asyncio.sleep(own.expovariate(0.5))

    await asyncio.gather(*(chat(number) for number in range(num_chats)))


# -- programs ----------------------------------------------------------------------------------


def _essay(topic: str) -> str:
    return f"{topic.capitalize()} should be taught at school, for {topic} will matter even more."


ARGUMENTS: dict[str, tuple[str, Callable[[str, int], dict[str, Any]]]] = {
    "branch_solve_merge": ("judge", lambda topic, _: {"essay": _essay(topic) * 3}),
    "few_shot_classification": ("classify", lambda topic, _: {"text": f"I can't stand {topic}."}),
    "generative_agents": (
        "plan_day",
        lambda topic, n: {"name": f"Person {n}", "traits": f"somebody who is fond of {topic}"},
    ),
    "json_extraction": (
        "extract",
        lambda topic, n: {"text": f"Ada, {n}, engineer, likes {topic}."},
    ),
    "multi_turn_chat": (
        "chat",
        lambda topic, _: {"questions": (f"What is {topic}?", "Say more.", f"A poem on {topic}.")},
    ),
    "rag_rerank": ("answer", lambda topic, _: {"question": f"Who was the first to sell {topic}?"}),
    "react_agent": ("answer", lambda _, n: {"question": f"Is Teide higher than {n} metres?"}),
    "self_consistency": (
        "vote",
        lambda topic, n: {"question": f"A box holds 6 pictures of {topic}. How many do {n} hold?"},
    ),
    "skeleton_of_thought": ("write", lambda topic, _: {"question": f"How can I enjoy {topic}?"}),
    "tree_of_thought": ("solve", lambda topic, n: {"problem": f"Divide {n} {topic} among five."}),
}


def programs(engine: Engine, num_rounds: int, at_once: int) -> None:
    """Runs each example's program repeatedly, with other arguments each time."""
    rng = random.Random(0)
    sys.path.insert(0, str(EXAMPLES))
    jobs = []
    for number in range(num_rounds):
        for module, (name, arguments) in ARGUMENTS.items():
            program = getattr(importlib.import_module(module), name)
            jobs.append((program, arguments(rng.choice(WORDS), number + 2), number))
    rng.shuffle(jobs)

    def run(job: tuple[Any, dict[str, Any], int]) -> None:
        program, arguments, seed = job
        program.using(seed=seed).run(**arguments, backend=engine)

    with ThreadPoolExecutor(at_once) as threads:
        list(threads.map(run, jobs))


# -- bench -------------------------------------------------------------------------------------


async def bench(engine: Engine, num_groups: int, at_once: int) -> None:
    """Prefixes of 256 tokens that six requests share, and chats of five turns."""
    target = EngineTarget(engine)
    ids = ordinary_ids(engine.vocab_size)
    shared = SharedPrefix(
        groups=num_groups, per_group=6, prefix_len=256, suffix_len=48, output_len=16,
        concurrency=at_once,
    )  # fmt: skip
    chats = MultiTurn(
        chats=num_groups, turns=5, prefix_len=256, suffix_len=48, output_len=16,
        concurrency=at_once,
    )  # fmt: skip
    await asyncio.gather(
        run_workload(shared.build("trace", ids), target),
        run_workload(chats.build("trace", ids), target),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("load", choices=["chats", "programs", "bench"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--size", type=int, help="chats, rounds of the ten programs, or groups")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    config = EngineConfig(record_trace=str(options.file), cache_bytes=512 << 20, seed=0)
    with Engine.from_model(options.model, config) as engine:
        if options.load == "programs":
            programs(engine, options.size or 12, options.concurrency)
            return
        load, size = (chats, 120) if options.load == "chats" else (bench, 24)
        asyncio.run(load(engine, options.size or size, options.concurrency))


if __name__ == "__main__":
    main()
