"""The metering log: a line a request, whose sums are the metrics' counts."""

from __future__ import annotations

import json
import os

import pytest

from ramet.runtime.api.errors import ConfigurationError
from ramet.runtime.api.events import Finished, Timings, Usage
from ramet.runtime.server.observability.metering import MeteringLog
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.server import wait_until

ENDLESS = Script(["word "], repeat=True)
END = Finished("stop", Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=4), Timings())


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_sums_are_the_metrics(serve, tmp_path):
    path = tmp_path / "metering.jsonl"
    keys = tmp_path / "keys.json"
    tenants = [{"name": "a", "keys": ["key-a"]}, {"name": "ops", "keys": ["ops"], "admin": True}]
    keys.write_text(json.dumps({"tenants": tenants}))
    server = serve(ENDLESS, metering_log=path, api_keys_file=keys)
    for key, count in (("key-a", 3), ("key-a", 5), ("ops", 2)):
        body = {"prompt": "the same secret prompt", "max_tokens": count, "n": 2}
        head = {"authorization": f"Bearer {key}"}
        assert server.http.post("/v1/completions", json=body, headers=head).status_code == 200
    found = lines(path)
    assert [each["tenant"] for each in found] == ["a"] * 4 + ["ops"] * 2
    assert {each["end"] for each in found} == {"length"}
    assert sum(each["generated_tokens"] for each in found) == 2 * (3 + 5 + 2)
    assert "secret" not in path.read_text()
    text = server.http.get("/metrics", headers={"authorization": "Bearer ops"}).text
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))

    def metric(name: str) -> float:
        return next(float(value) for key, value in metrics.items() if key.startswith(name))

    cached = sum(each["cached_prompt_tokens"] for each in found)
    computed = sum(each["computed_prompt_tokens"] for each in found)
    assert cached == metric("vllm:prefix_cache_hits_total") > 0
    assert cached + computed == metric("vllm:prompt_tokens_total")
    assert metric("vllm:generation_tokens_total") == 2 * (3 + 5 + 2)
    assert metric("ramet:metering_lost_lines_total") == 0


def test_all_choices_of_a_disconnected_call_are_metered(serve, tmp_path):
    path = tmp_path / "metering.jsonl"
    server = serve(ENDLESS, metering_log=path, model_options={"step_delay_s": 0.01})
    body = {"prompt": "x", "stream": True, "max_tokens": 3000, "n": 2}
    with server.http.stream("POST", "/v1/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        next(response.iter_lines())
    wait_until(lambda: path.read_text().count("\n") == 2)
    assert [each["end"] for each in lines(path)] == ["aborted"] * 2
    assert all(each["generated_tokens"] > 0 for each in lines(path))


def test_lines_are_appended(tmp_path):
    path = tmp_path / "metering.jsonl"
    for _ in range(2):
        log = MeteringLog(path, "m")
        log.record_end("a", "call\n\ud800", END)
        log.close()
    assert [each["computed_prompt_tokens"] for each in lines(path)] == [5, 5]
    assert path.stat().st_mode & 0o077 == 0


def test_what_cannot_be_written_is_counted(tmp_path, monkeypatch):
    log = MeteringLog(tmp_path / "metering.jsonl", "m")
    write = os.write

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.record_end("a", "1", END)
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
    log.record_end("a", "2", END)
    monkeypatch.undo()
    log.record_end("a", "3", END)
    log.close()
    assert log.num_lost == 2
    assert json.loads((tmp_path / "metering.jsonl").read_text().splitlines()[-1])["call"] == "3"


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path):
    with pytest.raises(ConfigurationError, match="metering_log: can't write"):
        MeteringLog(tmp_path / "none" / "metering.jsonl", "m")
