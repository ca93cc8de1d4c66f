"""The line says what runs, and nothing while nothing does."""

from __future__ import annotations

import pytest

from ramet.runtime.server.observability.stats_log import stats_line

IDLE = {
    "steps_per_s": 0.0, "running": 0, "waiting": 0, "output_tokens_per_s": 0.0,
    "prompt_tokens_per_s": 0.0, "kv_used": 0.25, "hit_rate": None,
}  # fmt: skip


@pytest.mark.parametrize("samples", [[], [IDLE], [IDLE, IDLE]])
def test_an_idle_engine_says_nothing(samples: list) -> None:
    assert stats_line(samples) == ""


def test_a_busy_engine_says_its_means() -> None:
    busy = {**IDLE, "steps_per_s": 5.0, "running": 3, "waiting": 1, "output_tokens_per_s": 100.0,
            "prompt_tokens_per_s": 3000.0, "kv_used": 0.5, "hit_rate": 0.8}  # fmt: skip
    assert stats_line([IDLE, busy]) == (
        "3 running, 1 waiting, output 50 tokens/s, prompts 1,500 tokens/s, KV cache 50% used, "
        "prefix hits 80%"
    )
