"""RecordedBackend: answers calls from a trace, and asks a model only for what isn't in it."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

from ramet.lang.backends.base import (
    Backend,
    CallPlace,
    ContinuationScore,
    GenerateCall,
    Prompt,
    ScoreCall,
    Scores,
    WarmCall,
)
from ramet.lang.base.errors import BackendError
from ramet.lang.graph.nodes import Gen, Select
from ramet.lang.trace.records import CallRecord, RunRecord
from ramet.runtime.api.events import Finished, TextDelta, Usage
from ramet.runtime.api.request import HintUpdate


class RecordedBackend:
    """Answers the calls of a run by their nodes' texts in a trace of the same program.

    Args:
        trace: of an earlier run, finished or not.
        otherwise: answers the calls that the trace has no text of; None: they fail.

    Of a ``select`` the trace knows what was chosen, not the scores: the choice has the score 0,
    the others minus infinity.
    """

    def __init__(self, trace: RunRecord, otherwise: Backend | None = None) -> None:
        self._writes_tool_calls = trace.writes_tool_calls
        self._texts = trace.texts
        self._records = {r.node_id: r for r in trace.calls if r.kind in ("gen", "select")}
        self._otherwise = otherwise
        self.name = trace.backend if otherwise is None else otherwise.name

    @property
    def writes_tool_calls(self) -> bool:
        """Whether the recorded run's backend did: the graph depends on it."""
        return self._writes_tool_calls

    def check(self, node: Gen | Select, place: CallPlace) -> None:
        """Refuses what the other backend does, where it would be asked."""
        if self._otherwise is not None and node.id not in self._texts:
            self._otherwise.check(node, place)

    async def stream(self, call: GenerateCall) -> AsyncIterator[TextDelta | Finished]:
        """The recorded text in one piece."""
        record = self._records.get(call.node_id)
        if record is None or call.node_id not in self._texts:
            async for event in self._other(call.node_id).stream(call):
                yield event
            return
        yield TextDelta(self._texts[call.node_id])
        yield _finished(record)

    async def score(self, call: ScoreCall) -> Scores:
        """Scores that make the recorded choice the best."""
        record, chosen = self._records.get(call.node_id), self._texts.get(call.node_id)
        if record is None or chosen not in call.continuations:
            return await self._other(call.node_id).score(call)
        scores = tuple(
            ContinuationScore(
                (), (0.0 if text == chosen else -math.inf,), (0.0,) if call.unconditional else ()
            )
            for text in call.continuations
        )
        return Scores(scores, _finished(record))

    async def warm(self, call: WarmCall) -> Usage | None:
        """Computes nothing where the call is recorded."""
        if self._otherwise is None or call.node_id in self._texts:
            return None
        return await self._otherwise.warm(call)

    async def count_tokens(self, prompt: Prompt) -> int | None:
        """As the other backend counts them."""
        return None if self._otherwise is None else await self._otherwise.count_tokens(prompt)

    async def update_hint(self, update: HintUpdate) -> None:
        """Passes the update on."""
        if self._otherwise is not None:
            await self._otherwise.update_hint(update)

    async def aclose(self) -> None:
        """The other backend is the caller's."""

    def _other(self, node_id: str) -> Backend:
        if self._otherwise is None:
            raise BackendError(f"the trace has no text of node {node_id}")
        return self._otherwise


def _finished(record: CallRecord) -> Finished:
    is_cut = record.finish_reason == "length"
    return Finished("length" if is_cut else "stop", record.usage, record.timings)
