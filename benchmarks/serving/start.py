"""Measures the start of ``ramet serve``: with an empty cache of compiled code, and after.

    python benchmarks/serving/start.py --rounds 3

A round is a start with an empty cache of compiled code, and two with what that has filled. A start
is over when ``GET /ready`` answers 200; then a plain request is sent, and one with a schema. Python
may keep its bytecode, as an installed package has it. Prints seconds a start, and what the first
starts take over the others.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from typing import Any

PHASES = ("ready", "first plain request", "first request with a schema", "second with a schema")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "Invent a person."}]
PLAIN: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 24, "temperature": 0}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA}}
CONSTRAINED = PLAIN | {"response_format": FORMAT}
COMMAND = [sys.executable, "-c", "from ramet.cli import main; main()", "serve"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(cache: str, model: str) -> list[float]:
    """Seconds that each of ``PHASES`` takes."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    began = time.perf_counter()
    command = [*COMMAND, "--model", model, "--port", str(port)]
    environment = os.environ | {"RAMET_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    server = subprocess.Popen(command, env=environment)
    try:
        while not answers(f"{url}/ready"):
            if server.poll() is not None:
                sys.exit(f"the server ended with {server.returncode}")
            time.sleep(0.01)
        times = [time.perf_counter() - began]
        for body in (PLAIN, CONSTRAINED, CONSTRAINED):
            began = time.perf_counter()
            post(f"{url}/v1/chat/completions", body)
            times.append(time.perf_counter() - began)
        return times
    finally:
        server.terminate()
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def post(url: str, body: dict[str, Any]) -> None:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        response.read()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--model", default="smollm2")
    options = parser.parse_args()
    cold: list[list[float]] = []
    warm: list[list[float]] = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for starts in (cold, warm, warm):
                starts.append(start(cache, options.model))
                print(*(f"{seconds:.2f}" for seconds in starts[-1]), flush=True)
    for phase, name in enumerate(PHASES):
        first = statistics.median(each[phase] for each in cold)
        later = statistics.median(each[phase] for each in warm)
        print(f"{name}: first starts {first:.2f} s, later ones {later:.2f} s: {first / later:.1f}")


if __name__ == "__main__":
    main()
