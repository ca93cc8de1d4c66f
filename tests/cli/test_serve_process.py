"""``ramet serve`` with keys, a certificate and a log in JSON, from its start to its end."""

from __future__ import annotations

import json
import signal
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import trustme

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.locate import locate_model

COMMAND = [sys.executable, "-c", "from ramet.cli import main; main()", "serve"]


class Server:
    """A process that serves, and what it has logged."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--port", "0", *arguments], stderr=subprocess.PIPE, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, text: str) -> str:
        """The first line with a text."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._reader.is_alive():
            for line in list(self.lines):
                if text in line:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no {text!r} in {self.lines}")

    def end(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self._reader.join()
        return code


@pytest.fixture
def start():
    try:
        locate_model("smollm2")
    except ModelLoadError as error:
        pytest.skip(str(error))
    servers: list[Server] = []

    def begin(*arguments: str) -> Server:
        servers.append(Server(*arguments))
        return servers[-1]

    yield begin
    for server in servers:
        server.process.kill()
        server.process.wait()


def test_it_serves_https_by_key_and_logs_objects(start, tmp_path: Path) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    certificate, ca, keys = (tmp_path / name for name in ("cert.pem", "ca.pem", "keys"))
    issued.private_key_and_cert_chain_pem.write_to_path(str(certificate))
    authority.cert_pem.write_to_path(str(ca))
    keys.write_text("sk-first")
    options = {
        "--ssl-certfile": str(certificate),
        "--api-key-file": str(keys),
        "--log-format": "json",
        "--threads": "1",
        "--cache-mib": "32",
    }
    arguments = [part for option in options.items() for part in option]
    server = start("smollm2", "--host", "localhost", "--access-log", *arguments)
    line = server.wait_for("Serving smollm2 on https://localhost:")
    url = json.loads(line)["message"].split(" on ")[1].split()[0]
    context = ssl.create_default_context(cafile=ca)

    def ask(key: str) -> int:
        body = {"prompt": "a river of words", "max_tokens": 2}
        headers = {"authorization": f"Bearer {key}", "x-request-id": f"call-{key[3:]}"}
        return httpx.post(
            f"{url}/v1/completions", json=body, headers=headers, verify=context, timeout=60
        ).status_code

    assert (ask("sk-first"), ask("sk-wrong")) == (200, 401)
    keys.write_text("sk-second")
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("API keys of 1 tenants have been read")
    assert (ask("sk-first"), ask("sk-second")) == (401, 200)
    assert server.end() == 0
    logged = [json.loads(each) for each in server.lines]
    calls = {each["request_id"]: each for each in logged if each["logger"] == "ramet.access"}
    assert calls["call-second"]["status"] == 200
    assert calls["call-second"]["tenant"] == "default"
    assert calls["call-wrong"]["status"] == 401
    assert not any("sk-" in each or "a river" in each for each in server.lines)


def test_a_chat_template_may_be_given(start, tmp_path: Path) -> None:
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
    server = start("--chat-template", str(template), "--threads", "1", "--cache-mib", "32")
    url = server.wait_for("Serving").split(" on ")[1].split()[0]
    body = {"messages": [{"role": "user", "content": "hi"}]}
    tokens = httpx.post(f"{url}/tokenize", json=body, timeout=60).json()["tokens"]
    text = httpx.post(f"{url}/detokenize", json={"tokens": tokens}, timeout=60).json()["prompt"]
    assert text == "<user>hi"
    assert server.end() == 0
