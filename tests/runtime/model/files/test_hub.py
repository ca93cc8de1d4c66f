"""Downloads, from a stand-in for a hub on the loopback address."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.hub import download_model

pytest.importorskip("huggingface_hub")

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"model_type": "llama"}',
    "model.safetensors": b"weights",
    "pytorch_model.bin": b"a pickle",
    "model-Q4_0.gguf": b"GGUF",
}
SCRIPT = """
import sys
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.files.hub import download_model
try:
    path = download_model(sys.argv[1])
    print(path, *sorted(each.name for each in path.glob("*")) if path.is_dir() else ())
except ModelLoadError as error:
    print("refused:", error)
"""


class Hub(BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.answer(with_body=False)

    def do_GET(self) -> None:
        self.answer(with_body=True)

    def answer(self, *, with_body: bool) -> None:
        path, kind = self.path.partition("?")[0], "application/json"
        if path.startswith("/api/models/owner/name/revision/"):
            siblings = [{"rfilename": name} for name in FILES]
            described = {"id": "owner/name", "sha": COMMIT, "siblings": siblings}
            body = json.dumps(described | {"private": False, "tags": [], "downloads": 0}).encode()
        elif path.startswith("/api/models/owner/name/tree/"):
            entries = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "oid": "0" * 40,
                }
                for name, data in FILES.items()
            ]
            body = json.dumps(entries).encode()
        elif path.startswith("/owner/name/resolve/") and path.rpartition("/")[2] in FILES:
            body, kind = FILES[path.rpartition("/")[2]], "application/octet-stream"
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def download(model: str, endpoint: str, home: Path) -> str:
    """In a process of its own: the library reads its settings when it is imported."""
    proxies = {name for name in os.environ if name.lower().endswith("_proxy")}
    environment = {name: value for name, value in os.environ.items() if name not in proxies}
    environment |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-c", SCRIPT, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_folder_is_downloaded_without_pickles(hub: str, tmp_path: Path) -> None:
    path, *names = download("owner/name", hub, tmp_path).split()
    assert names == ["config.json", "model.safetensors"]
    assert (Path(path) / "model.safetensors").read_bytes() == b"weights"
    assert Path(path).is_relative_to(tmp_path)


def test_a_gguf_file_is_downloaded_alone(hub: str, tmp_path: Path) -> None:
    path = Path(download("owner/name:model-Q4_0.gguf", hub, tmp_path))
    assert path.read_bytes() == b"GGUF"
    assert {each.name for each in path.parent.iterdir()} == {path.name}


def test_a_download_that_fails_is_a_load_error_in_a_line(hub: str, tmp_path: Path) -> None:
    answer = download("owner/another", hub, tmp_path)
    assert answer.startswith("refused: owner/another can't be downloaded")
    assert "\n" not in answer


def test_what_is_there_or_no_name_of_a_repository_is_not_downloaded(tmp_path: Path) -> None:
    for model in (str(tmp_path), "smollm2"):
        assert download_model(model) == Path(model)


def test_the_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelLoadError, match=r"ramet\[hub\]"):
        download_model("owner/name")
