"""What a model's makers recommend is what calls get that set nothing."""

from __future__ import annotations

import logging

import pytest

from ramet.runtime.engine.sampling_defaults import sampling_defaults

STATED = {
    "general.sampling.temp": 0.6,
    "general.sampling.top_k": 20.0,
    "general.sampling.top_p": 0.95,
    "general.sampling.penalty_repeat": 1.05,
    "general.name": "x",
}


def test_files_are_read_by_our_names() -> None:
    found = sampling_defaults(STATED, "auto")
    assert found == {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "repetition_penalty": 1.05}
    assert isinstance(found["top_k"], int)
    assert sampling_defaults(STATED, "none") == {}


@pytest.mark.parametrize("value", [-1.0, "warm", float("nan")])
def test_what_is_out_of_range_is_left_out(value: object, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ramet.engine")
    found = sampling_defaults({**STATED, "general.sampling.temp": value}, "auto")
    assert "temperature" not in found
    assert found["top_k"] == 20
    assert "temperature" in caplog.text
