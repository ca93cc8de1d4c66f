"""Schemathesis: bodies made from the server's own OpenAPI document, none of which may be a 5xx."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path


def job_no_body_of_the_document_is_a_server_error(url: str) -> None:
    command = Path(sys.executable).parent / "schemathesis"
    options = ["--checks", "not_a_server_error", "--phases", "fuzzing", "--seed", "1"]
    options += ["--max-examples", "12", "--request-timeout", "30", "--no-color"]
    # It leaves its examples behind.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [command, "run", f"{url}/openapi.json", *options],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert done.returncode == 0, done.stdout
    assert "Operations" in done.stdout
