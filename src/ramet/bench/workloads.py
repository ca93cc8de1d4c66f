"""Seeded workloads. The same scenario, seed and repeat give byte-identical requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

PERSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
        "role": {"type": "string", "enum": ["engineer", "designer", "manager", "analyst"]},
        "skills": {
            "type": "array",
            "items": {"type": "string", "maxLength": 20},
            "maxItems": 3,
        },
        "remote": {"type": "boolean"},
    },
    "required": ["name", "age", "role", "skills", "remote"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Job:
    """One request: greedy, with an exact output length unless a schema determines it.

    ``after`` is the index of a job whose prompt and output this job's prompt continues with
    ``prompt`` (a chat's next turn); it is sent when that one has ended.
    """

    prompt: tuple[int, ...]
    num_output_tokens: int
    schema: dict[str, Any] | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of arrival. ``rate`` (jobs a second, Poisson) paces them or, without one,
    ``concurrency``, the most that run at once."""

    name: str
    jobs: tuple[Job, ...]
    concurrency: int
    rate: float | None = None
    seed: str = "0"

    def num_distinct_prompt_tokens(self) -> int:
        """Tokens of all prompts, common prefixes counted once: what an unlimited prefix cache
        has to compute."""
        total = 0
        previous: tuple[int, ...] = ()
        for prompt in sorted(job.prompt for job in self.jobs if job.after is None):
            common = 0
            for ours, theirs in zip(prompt, previous, strict=False):
                if ours != theirs:
                    break
                common += 1
            total += len(prompt) - common
            previous = prompt
        # a later turn adds its own tokens and the last output token, which was never run
        return total + sum(len(job.prompt) + 1 for job in self.jobs if job.after is not None)

    def arrivals(self) -> Iterator[float]:
        """Seconds after the start at which each job may be sent."""
        rng = random.Random(f"{self.seed}/arrivals")
        at = 0.0
        for _ in self.jobs:
            yield at
            if self.rate is not None:
                at += rng.expovariate(self.rate)


def token_ids(count: int, *key: object) -> tuple[int, ...]:
    """``count`` reproducible token ids, away from the special ones at the low end."""
    rng = random.Random("/".join(map(str, key)))
    return tuple(rng.randrange(1000, 40000) for _ in range(count))


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a shared-prefix or multi-turn workload."""

    groups: int = 1
    per_group: int = 32
    prefix_len: int = 1024
    suffix_len: int = 32
    output_len: int = 32
    turns: int = 4
    concurrency: int = 8
    rate: float | None = None


def one_stream(seed: str, _: Shape) -> Workload:
    """One request: a 128-token prompt, 128 tokens out."""
    return Workload("a", (Job(token_ids(128, seed, "a"), 128),), 1, seed=seed)


def long_prompt(seed: str, _: Shape) -> Workload:
    """One request: a 512-token prompt, 2 tokens out; its time to first token is the figure."""
    return Workload("a512", (Job(token_ids(512, seed, "a512"), 2),), 1, seed=seed)


def _burst(count: int) -> Callable[[str, Shape], Workload]:
    def burst(seed: str, _: Shape) -> Workload:
        jobs = tuple(Job(token_ids(128, seed, "b", count, i), 128) for i in range(count))
        return Workload(f"b{count}", jobs, count, seed=seed)

    return burst


def shared_prefix(seed: str, shape: Shape) -> Workload:
    """``groups`` prefixes, each shared by ``per_group`` requests with a suffix of their own."""
    prefixes = [token_ids(shape.prefix_len, seed, "prefix", g) for g in range(shape.groups)]
    jobs = [
        Job(prefix + token_ids(shape.suffix_len, seed, "suffix", g, i), shape.output_len)
        for i in range(shape.per_group)
        for g, prefix in enumerate(prefixes)
    ]
    return Workload("shared-prefix", tuple(jobs), shape.concurrency, shape.rate, seed)


def multi_turn(seed: str, shape: Shape) -> Workload:
    """``groups`` chats of ``turns`` turns; each turn continues the last prompt and its output."""
    jobs: list[Job] = []
    last: list[int | None] = [None] * shape.groups
    for turn in range(shape.turns):
        length = shape.prefix_len if turn == 0 else shape.suffix_len
        for g in range(shape.groups):
            prompt = token_ids(length, seed, "turn", turn, g)
            jobs.append(Job(prompt, shape.output_len, after=last[g]))
            last[g] = len(jobs) - 1
    return Workload("multi-turn", tuple(jobs), shape.concurrency, shape.rate, seed)


def json_schema(seed: str, shape: Shape) -> Workload:
    """Requests whose output a JSON schema constrains, at most 200 tokens each."""
    jobs = tuple(
        Job(token_ids(64, seed, "json", i), 200, PERSON_SCHEMA) for i in range(shape.per_group)
    )
    return Workload("json", jobs, shape.concurrency, shape.rate, seed)


def free_text(seed: str, shape: Shape) -> Workload:
    """Requests like those of ``json`` without a schema, 64 tokens out: its counterpart. Prompts are
    others, since those of ``json`` may be cached."""
    jobs = tuple(Job(token_ids(64, seed, "free", i), 64) for i in range(shape.per_group))
    return Workload("free", jobs, shape.concurrency, shape.rate, seed)


SCENARIOS: dict[str, Callable[[str, Shape], Workload]] = {
    "a": one_stream,
    "a512": long_prompt,
    "b16": _burst(16),
    "b64": _burst(64),
    "shared-prefix": shared_prefix,
    "multi-turn": multi_turn,
    "json": json_schema,
    "free": free_text,
}
