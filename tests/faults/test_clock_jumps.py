"""The wall clock may be set at any time: deadlines, timeouts and limits follow another one."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from ramet.runtime.testing.scripted_model import Script

_YEARS_S = 1e8


@pytest.fixture
def jump(monkeypatch):
    """Sets the wall clock forward, or back."""
    offset = [0.0]
    real, real_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() + offset[0])
    monkeypatch.setattr(time, "time_ns", lambda: real_ns() + int(offset[0] * 1e9))

    def set_forward(seconds: float) -> None:
        offset[0] += seconds

    return set_forward


@pytest.mark.parametrize("seconds", [_YEARS_S, -_YEARS_S])
def test_what_runs_goes_on_and_ends_in_its_own_time(serve, wait_until, jump, seconds):
    server = serve(
        Script(["word "], repeat=True),
        model_options={"step_delay_s": 0.004},
        receive_timeout_s=60,
    )
    answers: dict[str, httpx.Response] = {}

    def call(name: str, **fields: object) -> None:
        body = {"prompt": "x", "max_tokens": 8000, **fields}
        answers[name] = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)

    calls = {
        "patient": {"max_tokens": 100, "deadline_s": 120},
        "late": {"deadline_s": 0.5},
    }
    threads = [threading.Thread(target=call, args=(name,), kwargs=calls[name]) for name in calls]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.num_live() == 2)
    jump(seconds)
    for thread in threads:
        thread.join()
    assert answers["patient"].json()["usage"]["completion_tokens"] == 100
    assert answers["late"].status_code == 504
    assert server.http.get("/health").status_code == 200
    assert server.chat(max_tokens=1).json()["created"] == pytest.approx(time.time(), abs=100)
