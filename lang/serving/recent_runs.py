"""Recently ended programs, for the page at ``/ui``."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

from ramet.lang.trace.timeline import MAX_TEXT_LEN
from ramet.lang.trace.trace import Trace
from ramet.runtime.api.errors import NotFoundError

MAX_RUNS = 50
MAX_CALLS = 2_000
"""Runs of more calls aren't kept."""


class RecentRuns:
    """The traces of the last runs, each for the tenant whose it was."""

    def __init__(self) -> None:
        self._runs: deque[tuple[str, str, Trace]] = deque(maxlen=MAX_RUNS)

    def add(self, tenant: str, call_id: str, trace: Trace) -> None:
        """Keeps a run, with the beginnings of its texts."""
        if len(trace.calls) > MAX_CALLS:
            return
        texts = {node: text[:MAX_TEXT_LEN] for node, text in trace.texts.items()}
        self._runs.appendleft((tenant, call_id, dataclasses.replace(trace, texts=texts)))

    def list(self, tenant: str) -> list[dict[str, Any]]:
        """A tenant's runs, the latest first."""
        return [
            {
                "id": call_id,
                "program": trace.program,
                "began_at": trace.began_at,
                "seconds": trace.wall_s,
                "num_calls": trace.num_calls,
                "prompt_tokens": trace.usage.prompt_tokens,
                "cached_tokens": trace.usage.cached_tokens,
                "completion_tokens": trace.usage.completion_tokens,
                "error": next((each.error for each in trace.calls if each.error), None),
            }
            for owner, call_id, trace in self._runs
            if owner == tenant
        ]

    def find(self, tenant: str, call_id: str) -> Trace:
        """A tenant's run.

        Raises:
            NotFoundError: it isn't kept, or is another tenant's.
        """
        for owner, known, trace in self._runs:
            if (owner, known) == (tenant, call_id):
                return trace
        raise NotFoundError(f"no recent program has the id {call_id!r}", param="id")
