"""``ramet serve`` says at once what it can't do, and ends at once when it is told to."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from ramet.cli import main; main()", "serve"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def test_a_taken_port_is_reported_before_the_model_is_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--port", str(port), "--model", "/no/such/model.gguf")
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"ramet: can't listen on 127.0.0.1:{port}: ")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--port", "65536"),
        ("--cache-mib", "0"),
        ("--max-context-len", "0"),
        ("--max-num-seqs", "0"),
        ("--threads", "0"),
        ("--grace", "-1"),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_option(option: str, value: str) -> None:
    ended = run(option, value)
    assert ended.returncode == 2
    assert option in ended.stderr


@pytest.mark.parametrize("model", ["", "/no/such/model.gguf"])
def test_a_model_that_is_none_is_named(model: str) -> None:
    ended = run("--port", "0", "--model", model)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"ramet: no model {model!r}")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_engine_starts_ends_it_gracefully(number: signal.Signals) -> None:
    arguments = ["--port", "0", "--model", "smollm2"]
    server = subprocess.Popen([*COMMAND, *arguments], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not children(server.pid):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.send_signal(number)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.communicate()


def children(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for task in tasks for child in task.read_text().split()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ssl-certfile", "/no/such.pem"], "ssl_certfile /no/such.pem can't be read"),
        (["--api-key-file", "/no/such"], "the API keys file /no/such can't be read"),
        (["--chat-template", "/no/such"], "the chat template /no/such can't be read"),
        (["--log-level", "loud"], "unknown log_level 'loud'; available: error, warning"),
        (["org/some-model"], "`hf download org/some-model --local-dir FOLDER`"),
        (["/no/such/model.gguf"], "no model '/no/such/model.gguf'"),
        (["--device", "cuda:99"], "there is no device cuda:99: t"),
    ],
)
def test_what_can_not_be_used_is_reported_in_a_line(arguments: list[str], message: str) -> None:
    ended = run("--port", "0", *arguments)
    assert ended.returncode == 1
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_model_is_named_once() -> None:
    ended = run("smollm2", "--model", "other")
    assert ended.returncode == 2
    assert "can't be combined with --model" in ended.stderr
