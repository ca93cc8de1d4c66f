"""Many connections that ask again and again: no error, no lost request, no growth.

``python benchmarks/serving/server_load.py`` serves a scripted model from a process of its own, with
its engine in another, and keeps ``--connections`` connections busy for ``--seconds``: whole answers
and streams of every API, constrained ones, and programs. It fails if an answer is not complete and
right, if a request is left in the engine, or if the resident memory of the two processes in the
last third is more than 3 % above that in the second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TEXT = "The sun is out."
HI = [{"role": "user", "content": "hi"}]
GRAPH = {
    "name": "two",
    "nodes": [
        {"kind": "text", "id": "0", "parts": ["hi "]},
        {"kind": "gen", "id": "1", "parent": "0", "name": "a"},
        {"kind": "text", "id": "2", "parent": "1", "parts": [" and "]},
        {"kind": "gen", "id": "3", "parent": "2", "name": "b", "params": {"max_tokens": 3}},
    ],
}
CHOICE = {"structured_outputs": {"choice": [TEXT, "It rains."]}}
ENDS = (b"[DONE]", b"response.completed", b"message_stop", b"program.completed")

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/chat/completions", {"messages": HI, "stream": True}),
    ("/v1/chat/completions", {"messages": HI, **CHOICE}),
    ("/v1/completions", {"prompt": "hi", "stream": True}),
    ("/v1/messages", {"messages": HI, "max_tokens": 20, "stream": True}),
    ("/v1/responses", {"input": "hi", "store": False}),
    ("/v1/responses", {"input": "hi", "stream": True, "store": False}),
    ("/v1/programs", {"graph": GRAPH, "stream": True}),
]


@dataclass
class Tally:
    """The outcomes of the requests so far."""

    num_sent: int = 0
    num_right: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)


def serve(pipe: Connection) -> None:
    """The server's process: sends its port and process ids, and ends on request."""
    from ramet.lang.serving import PROGRAMS
    from ramet.runtime.engine.process import EngineProcess
    from ramet.runtime.testing.scripted_engine import scripted_engine
    from ramet.runtime.testing.scripted_model import Script
    from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
    from ramet.runtime.testing.server import running_server

    factory = partial(scripted_engine, [Script([TEXT])])
    with (
        EngineProcess(factory, scripted_tokenizer(), model_name="m") as engine,
        running_server(engine, (PROGRAMS,)) as server,
    ):
        pipe.send((server.http_server.port, [os.getpid(), engine.process_id]))
        pipe.recv()
        pipe.send(server.num_live())


async def connect_and_ask(port: int, number: int, until: float, tally: Tally) -> None:
    """One connection, kept open, that asks until the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path, body in itertools.islice(itertools.cycle(CALLS), number, None):
        if time.monotonic() >= until:
            break
        tally.num_sent += 1
        began = time.monotonic()
        raw = json.dumps({"model": "m", **body}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(raw)}\r\n\r\n".encode() + raw)
        status, answer = await read_answer(reader)
        tally.seconds.append(time.monotonic() - began)
        whole = any(end in answer for end in ENDS) if "stream" in body else TEXT.encode() in answer
        if status == 200 and whole:
            tally.num_right += 1
        else:
            tally.wrong[f"{path} {status} {answer[:120]!r}"] += 1
    writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """An answer's status and body, by its length or in chunks."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return status, await reader.readexactly(int(value))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readexactly(2)
    return status, body


async def load(port: int, pids: list[int], connections: int, seconds: float) -> tuple[Tally, Any]:
    """Asks on all connections; the tally, and (time, bytes) of the processes' memory."""
    tally, memory = Tally(), []
    began = time.monotonic()
    until = began + seconds
    asks = [
        asyncio.create_task(connect_and_ask(port, number, until, tally))
        for number in range(connections)
    ]
    while time.monotonic() < until:
        await asyncio.sleep(0.5)
        memory.append((time.monotonic() - began, sum(map(resident, pids))))
    await asyncio.wait_for(asyncio.gather(*asks), 60)
    return tally, memory


def resident(pid: int) -> int:
    """A process's resident memory in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Runs the load; the exit code is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    try:
        port, pids = ours.recv()
        tally, memory = asyncio.run(load(port, pids, options.connections, options.seconds))
        ours.send("end")
        num_left = ours.recv()
    finally:
        process.join(30)
        process.kill()
    third = options.seconds / 3
    middle, last = (
        statistics.median(size for at, size in memory if third * k <= at < third * (k + 1))
        for k in (1, 2)
    )
    times = sorted(tally.seconds)
    num_lost = tally.num_sent - len(times)
    print(f"{tally.num_sent} requests on {options.connections} connections")
    print(f"right {tally.num_right}, wrong {sum(tally.wrong.values())}, lost {num_lost}")
    print(f"left in the engine {num_left}; memory, last third to second: {last / middle:.3f}")
    tail = times[len(times) * 99 // 100] / statistics.median(times)
    print(f"p99 to median of the answers' times: {tail:.1f}")
    for what, count in tally.wrong.most_common(5):
        print(f"  {count} x {what}")
    return int(bool(tally.wrong or num_lost or num_left or last > 1.03 * middle))


if __name__ == "__main__":
    sys.exit(main())
