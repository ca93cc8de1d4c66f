"""A long mixed load on the real model: nothing may be lost, leaked or left unanswered.

    python benchmarks/serving/soak.py --requests 2000

Requests of every kind, with shared prefixes, salts, constraints, deadlines, priorities and random
aborts. It ends with an error unless every request has exactly one end, nothing runs, every page
is back, outputs under a constraint are valid, some of them, run again alone on an empty cache, are
the same to the token, and resident memory has stayed flat: its mean over the last third of the run
within ``--max-growth`` of the second third's.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import random
import re
import sys
from collections import Counter

from ramet.grammars import Choice, Constraint, JsonSchema, Regex
from ramet.runtime.api.errors import RametError
from ramet.runtime.api.events import Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request, next_request_id
from ramet.runtime.engine import Engine, EngineConfig

Finishes = list[tuple[Request, list[int]]]
"""Requests that have ended well, and their tokens."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES


def random_constraint(rng: random.Random) -> Constraint | None:
    """Half the requests have none; the others a schema with random names, a regex or a choice."""
    kind = rng.random()
    if kind < 0.5:
        return None
    if kind < 0.75:
        names = [f"field_{rng.randrange(50)}" for _ in range(rng.randint(1, 3))]
        kinds = [{"type": "integer"}, {"type": "boolean"}, {"enum": ["red", "green"]}]
        return JsonSchema(
            {
                "type": "object",
                "properties": {name: rng.choice(kinds) for name in names},
                "required": sorted(set(names)),
                "additionalProperties": False,
            }
        )
    if kind < 0.9:
        return Regex(rf"[a-z]{{1,{rng.randint(1, 8)}}}( [a-z]{{1,5}})?")
    return Choice(tuple(f"option {i}" for i in range(rng.randint(1, 5))))


def random_request(rng: random.Random, engine: Engine) -> Request:
    """A request of some program, salt and tenant, with one of a few shared beginnings."""
    shared = f"System {rng.randrange(4)}. " + "Be brief and exact. " * rng.choice([0, 5, 30])
    text = shared + "Question: " + " ".join(str(rng.random()) for _ in range(rng.randint(1, 9)))
    hint = None
    if rng.random() < 0.5:
        hint = ProgramHint(
            program_id=f"program-{rng.randrange(20)}",
            steps_to_next_use=rng.choice([None, 0, 2]),
            remaining_uses=rng.choice([None, 0, 1, 3]),
            critical_path_weight=rng.random(),
            tool=rng.choice(["", "", "search"]),
        )
    return Request(
        prompt_token_ids=tuple(engine.tokenizer.encode(text)),
        params=SamplingParams(
            max_tokens=rng.choice([1, 8, 24, 48, 120]),
            temperature=rng.choice([0.0, 0.8]),
            seed=rng.randrange(1000),
            ignore_eos=rng.random() < 0.5,
            logprobs=rng.choice([None, None, 1]),
            presence_penalty=rng.choice([0.0, 0.0, 0.5]),
            stop=rng.choice([(), (), ("the",)]),
        ),
        constraint=random_constraint(rng),
        cache_salt=rng.choice(["", "", "a", f"salt-{rng.randrange(100)}"]),
        priority=rng.choice([0, 0, 1]),
        tenant=rng.choice(["", "x", "y"]),
        hint=hint,
        deadline_s=rng.choice([None, None, None, 0.05, 5.0]),
    )


def is_valid(constraint: Constraint | None, text: str) -> bool:
    """Whether a complete output matches; checked by other means than the masks."""
    match constraint:
        case JsonSchema():
            value = json.loads(text)
            return set(value) == set(constraint.schema["required"])
        case Choice():
            return text in constraint.choices
        case Regex():
            return re.fullmatch(constraint.pattern, text) is not None
    return True


async def call(rng: random.Random, engine: Engine, ends: Counter[str], finishes: Finishes) -> None:
    """One request from submission to its end, perhaps aborted on the way."""
    request = random_request(rng, engine)
    abort_after = rng.choice([None, None, None, 0, 3])
    try:
        stream = engine.submit(request)
    except RametError as error:
        ends[f"refused: {error.code}"] += 1
        return
    if abort_after == 0:
        stream.abort()
    text, num_events, last = "", 0, None
    token_ids: list[int] = []
    async for event in stream:
        if isinstance(last, Finished | Failed):
            raise AssertionError("an event after the end")
        last = event
        num_events += 1
        if isinstance(event, TextDelta):
            text += event.text
            token_ids += [token.token_id for token in event.tokens]
        if num_events == abort_after:
            stream.abort()
    if isinstance(last, Failed):
        ends[str(last.error.code)] += 1
        if last.error.code not in ("aborted", "deadline_exceeded"):
            raise last.error
    elif isinstance(last, Finished):
        ends[last.reason] += 1
        if last.reason == "stop" and not last.matched_stop:
            assert is_valid(request.constraint, text), (request.constraint, text)
        finishes.append((request, token_ids))
    else:
        raise AssertionError("a stream without an end")


async def soak(
    engine: Engine, num_requests: int, concurrency: int, seed: int, num_kept: int
) -> tuple[list[int], Finishes]:
    """Runs the load; returns resident memory after each request, and what ended well of about
    ``2 * num_kept`` requests."""
    ends: Counter[str] = Counter()
    finishes: Finishes = []
    stride = max(num_requests // max(2 * num_kept, 1), 1)
    resident: list[int] = []
    gate = asyncio.Semaphore(concurrency)

    async def one(number: int) -> None:
        async with gate:
            kept = finishes if number % stride == 0 else []
            await call(random.Random(seed * 1_000_003 + number), engine, ends, kept)
            resident.append(resident_bytes())
            if len(resident) % 200 == 0:
                print(f"{len(resident)} requests, {resident[-1] >> 20} MiB", flush=True)

    await asyncio.gather(*(one(number) for number in range(num_requests)))
    print("ends:", dict(ends))
    assert ends.total() == num_requests
    return resident, finishes


def check_alone(engine: Engine, finishes: Finishes, count: int, seed: int) -> None:
    """Runs some requests again, each alone on an empty cache: the tokens are the same."""
    for request, token_ids in random.Random(seed).sample(finishes, min(count, len(finishes))):
        engine.clear_cache()
        alone = dataclasses.replace(
            request, request_id=next_request_id(), deadline_s=None, hint=None
        )
        assert engine.submit(alone).result().token_ids == token_ids, request


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=24)
    parser.add_argument("--pages", type=int, default=64, help="few, so that pages run out")
    parser.add_argument("--policy", default="program-aware")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-growth", type=float, default=0.03)
    parser.add_argument("--again", type=int, default=60, help="requests that are run again alone")
    options = parser.parse_args()
    config = EngineConfig(num_pages=options.pages, max_num_seqs=16, policy=options.policy)
    with Engine.from_model(options.model, config) as engine:
        resident, finishes = asyncio.run(
            soak(engine, options.requests, options.concurrency, options.seed, options.again)
        )
        engine.check()
        stats = engine.stats()
        check_alone(engine, finishes, options.again, options.seed)
        print(stats)
        third = len(resident) // 3
        middle = sum(resident[third : 2 * third]) / third
        growth = sum(resident[2 * third :]) / (len(resident) - 2 * third) / middle - 1
        print(f"resident memory, last third against the second: {growth:+.2%}")
        assert stats.num_running == stats.num_waiting == stats.num_compiling == 0
        assert sum(stats.ends.values()) <= options.requests
        assert stats.num_preemptions > 0, "the load was too light to preempt anybody"
        if growth > options.max_growth:
            print("memory grows", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
