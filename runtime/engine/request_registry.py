"""Requests from the moment the engine takes them in to their one terminal event."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from ramet.runtime.api.errors import (
    DeadlineExceededError,
    EngineDeadError,
    InvalidParameterError,
    QueueFullError,
    RametError,
)
from ramet.runtime.api.events import Failed, Usage
from ramet.runtime.engine.grammar_manager import CompiledGrammar
from ramet.runtime.scheduler import Scheduler, SequenceState
from ramet.runtime.scheduler.sequence.sequence import Sequence


class RequestRegistry:
    """Who is answered for: sequences that wait for their grammars, and those of the scheduler.

    ``register`` is called from any thread, all else on the scheduler's.

    Args:
        scheduler: takes those whose grammar is ready; its ends are told to ``note_end``.
        max_waiting: most requests that don't run yet.
        clock: seconds.
    """

    def __init__(self, scheduler: Scheduler, max_waiting: int, clock: Callable[[], float]) -> None:
        self._scheduler = scheduler
        self._max_waiting = max_waiting
        self._clock = clock
        self._lock = threading.Lock()
        self._live: dict[str, Sequence] = {}
        self._ended: list[Sequence] = []
        self._compiling: set[Sequence] = set()
        self._closed: RametError | None = None

    @property
    def num_compiling(self) -> int:
        """How many wait for their grammars."""
        return len(self._compiling)

    def register(self, sequence: Sequence) -> None:
        """Takes responsibility for a request: from here on it gets its one terminal event."""
        request = sequence.request
        with self._lock:
            if self._closed is not None:
                raise self._closed
            if request.request_id in self._live:
                raise InvalidParameterError(
                    f"a request {request.request_id!r} is running already", param="request_id"
                )
            excess = len(self._live) - self._scheduler.num_running - self._max_waiting + 1
            if excess > 0:
                raise QueueFullError(
                    f"{self._max_waiting} requests are waiting, and that is the limit",
                    retry_after_s=self._scheduler.stats.expected_wait_s(excess),
                )
            self._live[request.request_id] = sequence
            if request.constraint is not None:
                self._compiling.add(sequence)

    def close(self, reason: RametError) -> None:
        """Takes in nobody any more, from any thread; who asks gets ``reason``. The first counts."""
        with self._lock:
            self._closed = self._closed or reason

    def start(self, sequence: Sequence, grammar: Future[CompiledGrammar] | None = None) -> None:
        """Queues a sequence whose grammar, if it has one, is ready or has failed."""
        if sequence.state is SequenceState.FINISHED:
            return
        self._compiling.discard(sequence)
        error: BaseException | None = None
        if grammar is not None:
            sequence.grammar_s = self._clock() - sequence.submit_time
            error = EngineDeadError("closed") if grammar.cancelled() else grammar.exception()
            if error is None:
                try:
                    sequence.matcher = grammar.result().matcher()
                except Exception as fault:
                    error = fault
        if error is None:
            try:
                self._scheduler.add(sequence)
            except RametError as refused:
                error = refused
        if error is not None:
            self._refuse(sequence, error)

    def end(self, request_id: str, error: RametError) -> None:
        """Ends a request wherever it is; unknown and ended ones are ignored."""
        sequence = self._live.get(request_id)
        if sequence is None or sequence.state is SequenceState.FINISHED:
            return
        if self._scheduler.knows(sequence):
            self._scheduler.release(sequence, error)
        else:
            self._compiling.discard(sequence)
            self._refuse(sequence, error)

    def expire(self) -> None:
        """Ends those whose deadline has passed while their grammar was compiled."""
        now = self._clock()
        for sequence in tuple(self._compiling):
            if sequence.deadline is not None and now >= sequence.deadline:
                error = DeadlineExceededError("the deadline passed while the grammar was compiled")
                self.end(sequence.request.request_id, error)

    def note_end(self, sequence: Sequence) -> None:
        """The sequence has got its terminal event."""
        self._ended.append(sequence)

    def forget_ended(self) -> None:
        """Frees the names of those that have ended."""
        ended, self._ended = self._ended, []
        if ended:
            with self._lock:
                for sequence in ended:
                    del self._live[sequence.request.request_id]

    def end_all(self, reason: RametError) -> None:
        """Answers everybody who still waits, and takes in nobody any more."""
        with self._lock:
            self._closed = reason
            live = list(self._live.values())
            self._live.clear()
        for sequence in live:
            if sequence.state is SequenceState.FINISHED:
                continue
            try:
                if self._scheduler.knows(sequence):
                    self._scheduler.release(sequence, reason)
                else:
                    self._refuse(sequence, reason)
            except Exception:  # its bookkeeping is broken; its caller still gets an answer
                self._refuse(sequence, reason)

    def _refuse(self, sequence: Sequence, error: BaseException) -> None:
        """Ends a sequence that the scheduler has never seen."""
        if not isinstance(error, RametError):
            error = RametError(f"the request failed inside the engine: {error}")
        sequence.state = SequenceState.FINISHED
        self._scheduler.stats.ends[error.code or error.type] += 1
        self.note_end(sequence)
        sequence.emit(Failed(error, Usage(prompt_tokens=sequence.num_prompt)))
