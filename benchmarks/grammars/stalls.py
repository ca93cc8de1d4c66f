"""The longest gap of a stream over HTTP, alone and next to constraints that are hard to follow.

    python benchmarks/grammars/stalls.py [--model smollm2] [--seconds 6] [--repeat 3]

Starts a server, streams plain text from it, and sends one hard constraint after the other. Each
window is as long as the one without any that precedes it, so that both see the same machine; what
is printed is the stream's worst and 99th-percentile gap in these over those without, and how the
constraint's own requests ended.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import threading
import time
from typing import Any

import httpx
import numpy as np

STRING40 = {"type": "string", "maxLength": 40}
PERSON = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
    "required": ["id", "name"],
    "additionalProperties": False,
}
NESTED = {"$ref": "#/$defs/n", "$defs": {"n": {
    "type": "array", "uniqueItems": True, "items": {"$ref": "#/$defs/n"}}}}  # fmt: skip


def unique(items: dict[str, Any]) -> dict[str, Any]:
    return {"guided_json": {"type": "array", "uniqueItems": True, "minItems": 30, "items": items}}


BOMBS: dict[str, dict[str, Any]] = {
    "a plain schema": {"guided_json": PERSON},
    "unique integers": unique({"type": "integer"}),
    "unique strings of at most 40": unique(STRING40),
    "unique strings of a pattern": unique({**STRING40, "pattern": "^[a-z]+( [a-z]+)*$"}),
    "unique pairs": unique(
        {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
    ),
    "unique objects": unique(PERSON),
    "nested unique arrays": {"guided_json": NESTED},
    "an EBNF of 400 rules": {
        "guided_grammar": "root ::= (r0 | r1)*\n" + "\n".join(
            f'r{i} ::= "a{i}" r{(i * 7 + 1) % 400} | [a-z]{{1,9}} r{(i * 3 + 2) % 400}?'
            for i in range(400)
        )
    },
    "palindromes": {
        "guided_grammar": "root ::= "
        + " | ".join(f'"{c}" root "{c}"' for c in "abcdefghijklmnopqrstuvwxyz") + ' | ""'
    },
}  # fmt: skip


class Stream(threading.Thread):
    """A stream of plain text without end; notes the gaps between its pieces."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._lock = threading.Lock()
        self._gaps: list[float] = []
        self.is_wanted = True

    def run(self) -> None:
        body = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True,
                "stream": True, "temperature": 1}  # fmt: skip
        while self.is_wanted:
            with httpx.stream("POST", f"{self._url}/v1/completions", json=body, timeout=120) as got:
                last = time.monotonic()
                for _ in got.iter_bytes():
                    now = time.monotonic()
                    with self._lock:
                        self._gaps.append(now - last)
                    last = now
                    if not self.is_wanted:
                        return

    def take(self) -> np.ndarray[Any, Any]:
        """The gaps since the last call."""
        with self._lock:
            gaps, self._gaps = self._gaps, []
        return np.array(gaps or [0.0])


def throw(url: str, bomb: dict[str, Any], seconds: float) -> list[str]:
    """Requests with a constraint for some seconds; how each ended."""
    ends: list[str] = []
    end = time.monotonic() + seconds
    body = {
        "prompt": "A list of ten: [4821, 99120, 17,",
        "max_tokens": 80,
        "temperature": 1,
        **bomb,
    }
    while (left := end - time.monotonic()) > 0:
        try:
            got = httpx.post(
                f"{url}/v1/completions",
                json={**body, **bomb, "seed": len(ends)},
                timeout=left + 0.1,
            )
            reason = got.json()["choices"][0]["finish_reason"] if got.status_code == 200 else ""
            ends.append(reason or str(got.status_code))
        except httpx.TimeoutException:
            ends.append("cut by the client")
    return ends


def start_server(model: str) -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    code = "from ramet.cli import main; main()"
    arguments = ["serve", "--model", model, "--port", port]
    return subprocess.Popen([sys.executable, "-c", code, *arguments]), f"http://127.0.0.1:{port}"


def wait_until_ready(url: str) -> None:
    for _ in range(600):
        try:
            if httpx.get(f"{url}/ready", timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise SystemExit("the server is not ready after two minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--repeat", type=int, default=3, help="windows of each kind, in turns")
    parser.add_argument("--url", help="a server that runs already")
    args = parser.parse_args()
    process, url = (None, args.url) if args.url else start_server(args.model)
    try:
        wait_until_ready(url)
        stream = Stream(url)
        stream.start()
        throw(url, BOMBS["a plain schema"], 2)  # Compiled code is loaded.
        for name, bomb in BOMBS.items():
            gaps: tuple[list[float], list[float]] = [], []
            ends = []
            stream.take()
            for _ in range(args.repeat):
                time.sleep(args.seconds)
                gaps[0].extend(stream.take())
                ends += throw(url, bomb, args.seconds)
                gaps[1].extend(stream.take())
            gaps_alone, gaps_under_load = gaps
            ratios = [
                np.percentile(gaps_under_load, p) / np.percentile(gaps_alone, p) for p in (99, 100)
            ]
            counts = ", ".join(f"{e} {ends.count(e)}" for e in sorted(set(ends)))
            print(f"{name:32} p99 {ratios[0]:.2f}, worst {ratios[1]:.2f}   ({counts})", flush=True)
        stream.is_wanted = False
        stream.join(30)
    finally:
        if process is not None:
            process.terminate()
            process.wait(60)


if __name__ == "__main__":
    main()
