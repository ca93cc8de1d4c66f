"""Measures what long bodies cost other clients: a stream's gaps, with and without them.

``python benchmarks/serving/long_bodies.py`` serves a scripted model from processes of its own and
reads a stream while other connections send long bodies, in windows that alternate with quiet ones.
It prints, for each kind of body, the median over windows of the stream's worst gap in each, and
the ratio of the two. A busy machine lengthens both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

STEP_S = 0.01
HI = {"role": "user", "content": "hi"}

KINDS: dict[str, tuple[str, Callable[[], dict[str, Any]]]] = {
    "10 MB of one letter": (
        "/v1/chat/completions",
        lambda: {"messages": [{"role": "user", "content": "a" * 10_000_000}]},
    ),
    "400,000 messages": ("/v1/chat/completions", lambda: {"messages": [HI] * 400_000}),
    "2,000 messages": ("/v1/chat/completions", lambda: {"messages": [HI] * 2000}),
    "4 million token ids": ("/v1/completions", lambda: {"prompt": [5] * 4_000_000}),
    "a schema of 2 MB": (
        "/v1/chat/completions",
        lambda: {
            "messages": [HI],
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"enum": [f"v{i}" for i in range(200_000)]}},
            },
        },
    ),
    "an unknown field of 10 MB": ("/v1/completions", lambda: {"prompt": "a", "x": [[1]] * 10**6}),
}


def serve(pipe: Connection) -> None:
    """The server's process: sends its port, and ends when a message comes."""
    from ramet.runtime.engine.process import EngineProcess
    from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
    from ramet.runtime.testing.server import running_server

    with (
        EngineProcess(slow_engine, scripted_tokenizer(), model_name="m") as engine,
        running_server(engine) as server,
    ):
        pipe.send(server.http_server.port)
        pipe.recv()


def slow_engine() -> Any:
    """An engine whose steps take a known time."""
    from ramet.runtime.engine import Engine
    from ramet.runtime.testing.scripted_model import ScriptedModel
    from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

    tokenizer = scripted_tokenizer()
    return Engine(ScriptedModel(tokenizer, step_delay_s=STEP_S), tokenizer, model_name="m")


Connected = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def post(port: int, path: str, body: bytes) -> Connected:
    """Sends a request on a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


async def gaps(port: int, seconds: float) -> list[float]:
    """The seconds between the pieces of a stream."""
    body = {"model": "m", "prompt": "hi", "stream": True, "max_tokens": 2000, "ignore_eos": True}
    reader, writer = await post(port, "/v1/completions", json.dumps(body).encode())
    await reader.readuntil(b"data: ")
    found, last = [], time.perf_counter()
    until = last + seconds
    while last < until:
        if not await reader.read(1 << 16):
            raise RuntimeError("the stream has ended")
        now = time.perf_counter()
        found.append(now - last)
        last = now
    writer.close()
    return found


async def send_long_bodies(port: int, path: str, body: bytes) -> None:
    """Sends one long body after another."""
    while True:
        reader, writer = await post(port, path, body)
        try:
            await reader.read()
        finally:
            writer.close()


async def compare(port: int, path: str, body: bytes, options: argparse.Namespace) -> None:
    """Alternates quiet windows and ones with long bodies; prints the worst gaps."""
    worst: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.windows):
        for busy in (False, True):
            senders = [
                asyncio.create_task(send_long_bodies(port, path, body))
                for _ in range(options.senders * busy)
            ]
            worst[busy].append(max(await gaps(port, options.seconds)))
            for sender in senders:
                sender.cancel()
            await asyncio.gather(*senders, return_exceptions=True)
            await asyncio.sleep(1.0)
    quiet, busy_ = (statistics.median(worst[busy]) for busy in (False, True))
    print(f"{1e3 * quiet:7.1f} ms {1e3 * busy_:7.1f} ms  ratio {busy_ / quiet:5.2f}", flush=True)


def send_from_process(port: int, options: argparse.Namespace, kind: str) -> None:
    """Runs one comparison in a process of its own, so that building bodies disturbs nothing."""
    path, make = KINDS[kind]
    body = json.dumps({"model": "m", **make()}).encode()
    asyncio.run(compare(port, path, body, options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--kind", choices=KINDS, help="one kind of body alone")
    options = parser.parse_args()
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    server = spawn.Process(target=serve, args=(theirs,))
    server.start()
    port = ours.recv()
    print(f"{'':27} quiet       busy")
    for kind in [options.kind] if options.kind else KINDS:
        print(f"{kind:25}", end=" ", flush=True)
        process = spawn.Process(target=send_from_process, args=(port, options, kind))
        process.start()
        process.join()
    ours.send(None)
    server.join()


if __name__ == "__main__":
    main()
