"""A long load over HTTP: is the resident memory of both processes flat?

    python benchmarks/serving/memory.py                   # an hour of mixed calls
    python benchmarks/serving/memory.py --schemas 10000   # different schemas instead

Starts ``ramet serve`` and keeps ``--concurrency`` calls running: whole answers and streams of
every API with shared prefixes, salts and constraints, programs, clients that leave, and bodies
that are refused. It reads resident memory and the parts of the memory from ``/metrics``, prints
them, and ends with the growth of each process's memory over the last half: the slope of a line
fitted to it, times its length, over its mean. More than ``--max-growth`` is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

Call = Callable[[httpx.AsyncClient, random.Random], Awaitable[None]]
Readings = dict[str, list[tuple[float, float]]]
"""Seconds and MiB, by process."""

KINDS = (
    {"type": "integer", "minimum": 0},
    {"type": "string", "maxLength": 12},
    {"type": "boolean"},
    {"enum": ["red", "green"]},
    {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    {"type": "string", "format": "date"},
    {"type": "string", "pattern": "^[a-f]{2,5}$"},
)
GRAPH = {
    "name": "two",
    "nodes": [
        {"kind": "text", "id": "0", "parts": ["One: "]},
        {"kind": "gen", "id": "1", "parent": "0", "name": "a", "params": {"max_tokens": 8}},
        {"kind": "text", "id": "2", "parent": "1", "parts": [" Two: "]},
        {"kind": "gen", "id": "3", "parent": "2", "name": "b", "params": {"max_tokens": 8}},
    ],
}


def schema(rng: random.Random, number: int) -> dict[str, Any]:
    """An object schema that no other number has."""
    names = [f"field_{number}_{i}" for i in range(rng.randint(1, 4))]
    return {
        "type": "object",
        "properties": {name: rng.choice(KINDS) for name in names},
        "required": names,
        "additionalProperties": False,
    }


def response_format(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": schema(rng, number), "strict": True},
    }


def messages(rng: random.Random) -> list[dict[str, str]]:
    shared = f"You are helper {rng.randrange(6)}. " + "Be brief and exact. " * rng.choice([1, 20])
    question = "What is " + " ".join(str(rng.random()) for _ in range(rng.randint(1, 6)))
    return [{"role": "system", "content": shared}, {"role": "user", "content": question}]


def body(rng: random.Random) -> dict[str, Any]:
    salts = [{}, {}, {"cache_salt": str(rng.randrange(50))}]
    return {
        "messages": messages(rng),
        "max_tokens": rng.choice([1, 16, 48]),
        "seed": rng.randrange(1000),
        **rng.choice(salts),
    }


async def post(
    client: httpx.AsyncClient, path: str, sent: dict[str, Any], status: int = 200
) -> None:
    answer = await client.post(path, json=sent)
    if answer.status_code != status:
        raise RuntimeError(f"{path}: {answer.status_code} {answer.text[:300]}")


async def chat(client: httpx.AsyncClient, rng: random.Random) -> None:
    await post(client, "/v1/chat/completions", {**body(rng), "n": rng.choice([1, 1, 3])})


async def constrained(client: httpx.AsyncClient, rng: random.Random) -> None:
    constraint = response_format(rng, rng.randrange(300))
    await post(client, "/v1/chat/completions", {**body(rng), "response_format": constraint})


async def stream(client: httpx.AsyncClient, rng: random.Random) -> None:
    """Reads a stream to its end, or leaves it."""
    num_lines = rng.choice([10**6, 3])
    sent = {**body(rng), "stream": True}
    async with client.stream("POST", "/v1/chat/completions", json=sent) as answer:
        lines = answer.aiter_lines()
        for _ in range(num_lines):
            if await anext(lines, None) is None:
                break


async def respond(client: httpx.AsyncClient, rng: random.Random) -> None:
    sent = {"input": messages(rng)[1]["content"], "max_output_tokens": 16}
    await post(client, "/v1/responses", sent)


async def anthropic(client: httpx.AsyncClient, rng: random.Random) -> None:
    sent = {"model": "smollm2", "messages": messages(rng)[1:], "max_tokens": 8}
    await post(client, "/v1/messages", sent)


async def program(client: httpx.AsyncClient, rng: random.Random) -> None:
    await post(client, "/v1/programs", {"graph": GRAPH, "seed": rng.randrange(99)})


async def refused(client: httpx.AsyncClient, rng: random.Random) -> None:
    long = {"messages": [{"role": "user", "content": "a" * rng.randrange(10**5, 4 * 10**6)}]}
    wrong = {"messages": messages(rng), "unknown": rng.random()}
    await post(client, "/v1/chat/completions", rng.choice([long, wrong]), 400)


MIXED: tuple[Call, ...] = (
    chat, chat, constrained, constrained, stream, stream, respond, anthropic, program, refused,
)  # fmt: skip


async def work(calls: Callable[[random.Random], Awaitable[None] | None], seed: int) -> int:
    """Makes one call after another until there are none left; returns how many."""
    rng = random.Random(seed)
    for count in itertools.count():
        call = calls(rng)
        if call is None:
            return count
        await call
    raise AssertionError


async def watch(client: httpx.AsyncClient, interval_s: float, readings: Readings) -> None:
    """Reads and prints memory until it is cancelled."""
    began = time.monotonic()
    while True:
        text = (await client.get("/metrics", timeout=60)).text
        samples = [s for each in text_string_to_metric_families(text) for s in each.samples]
        now = time.monotonic() - began
        shown = []
        for sample in samples:
            if sample.name == "ramet:resident_memory_bytes":
                mib = sample.value / (1 << 20)
                readings.setdefault(sample.labels["process"], []).append((now, mib))
                shown.append(f"{sample.labels['process']} {mib:.1f}")
            elif sample.name == "ramet:memory_bytes":
                shown.append(f"({sample.labels['part']} {sample.value / (1 << 20):.1f})")
            elif "longest_gc_pause" in sample.name:
                shown.append(f"[gc {1e3 * sample.value:.1f} ms]")
        print(f"{now:6.0f} s", *shown, flush=True)
        await asyncio.sleep(interval_s)


def growth(values: list[tuple[float, float]]) -> float:
    """Relative growth over the last half, by a fitted line."""
    half = np.array(values[len(values) // 2 :])
    slope = np.polyfit(half[:, 0], half[:, 1], 1)[0]
    return float(slope * (half[-1, 0] - half[0, 0]) / half[:, 1].mean())


async def load(url: str, options: argparse.Namespace) -> tuple[Readings, int]:
    """Runs the load; returns the readings and the number of calls."""
    readings: Readings = {}
    end = time.monotonic() + options.seconds
    numbers = itertools.count()
    kinds: Counter[str] = Counter()
    limits = httpx.Limits(max_connections=options.concurrency + 4)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits) as client:

        def mixed(rng: random.Random) -> Awaitable[None] | None:
            if time.monotonic() > end:
                return None
            call = rng.choice(MIXED)
            kinds[call.__name__] += 1
            return call(client, rng)

        def new_schema(rng: random.Random) -> Awaitable[None] | None:
            number = next(numbers)
            if number >= options.schemas:
                return None
            kinds["schema"] += 1
            sent = {**body(rng), "response_format": response_format(rng, number), "max_tokens": 8}
            return post(client, "/v1/chat/completions", sent)

        watcher = asyncio.create_task(watch(client, options.interval, readings))
        calls = new_schema if options.schemas else mixed
        counts = await asyncio.gather(
            *(work(calls, options.seed + i) for i in range(options.concurrency))
        )
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
    print(dict(kinds))
    return readings, sum(counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--schemas", type=int, default=0, help="different schemas; 0: mixed calls")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--interval", type=float, default=10, help="seconds between readings")
    parser.add_argument("--max-growth", type=float, default=0.02)
    parser.add_argument("--cache-mib", type=int, default=128, help="fills early in the run")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    command = [sys.executable, "-c", "from ramet.cli import main; main()", "serve", "--port", "0"]
    command += ["--cache-mib", str(options.cache_mib)]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        found = None
        while found is None:
            line = server.stderr.readline()
            if not line:
                raise RuntimeError("the server has ended")
            found = re.search(r"http://\S+", line)
        readings, count = asyncio.run(load(found[0], options))
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    print(f"{count} calls")
    too_much = False
    for process, values in readings.items():
        grown = growth(values)
        too_much |= grown > options.max_growth
        print(f"{process}: {values[-1][1]:.1f} MiB, {grown:+.2%} over the last half")
    return int(too_much)


if __name__ == "__main__":
    sys.exit(main())
