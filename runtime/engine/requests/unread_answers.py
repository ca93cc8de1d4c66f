"""Bounds the events that a server keeps for readers that don't take them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from ramet.runtime.api.errors import SlowReaderError
from ramet.runtime.api.events import Embedding, Event, PromptLogprobs, TextDelta, TokenInfo
from ramet.runtime.api.memory import MemoryPart

_EVENT_BYTES = 400
_TOKEN_BYTES = 200


class DroppableStream(Protocol):
    """A stream whose unread events can be dropped."""

    def drop(self, error: SlowReaderError) -> None:
        """Replaces what is unread by ``error``, and aborts the request."""
        ...


@dataclass(frozen=True, slots=True)
class Dropped:
    """A stream that must be dropped, and why."""

    stream: DroppableStream
    error: SlowReaderError

    def drop(self) -> None:
        """Drops it."""
        self.stream.drop(self.error)


class UnreadAnswers:
    """Counts unread events by stream. Where they don't fit, the stream with the most is dropped.

    So a reader that keeps up is never dropped for others. Safe from any thread.
    """

    def __init__(self, part: MemoryPart) -> None:
        self._part = part
        self._lock = threading.Lock()
        self._bytes: dict[DroppableStream, int] = {}

    def add(self, stream: DroppableStream, event: Event) -> Dropped | None:
        """Counts an event that waits for its reader; returns the stream to drop, if there is one.

        The caller, which may hold its stream's lock, drops it after having let go of that.
        """
        num_bytes, part = event_bytes(event), self._part
        with self._lock:
            self._bytes[stream] = self._bytes.get(stream, 0) + num_bytes
            part.num_bytes += num_bytes
            if part.num_bytes <= part.limit:
                return None
            slowest = max(self._bytes, key=self._bytes.__getitem__)
            unread = self._remove(slowest)
        part.count_refusal()
        error = SlowReaderError(
            f"the answer was dropped: its client left {unread} bytes unread, and the memory for "
            f"{part.name} is full ({part.limit} bytes, --memory-gib)",
            part=part.name,
        )
        return Dropped(slowest, error)

    def remove(self, stream: DroppableStream) -> None:
        """The stream has nothing unread any more."""
        if stream in self._bytes:
            with self._lock:
                self._remove(stream)

    def _remove(self, stream: DroppableStream) -> int:
        num_bytes = self._bytes.pop(stream, 0)
        self._part.num_bytes -= num_bytes
        return num_bytes


def event_bytes(event: Event) -> int:
    """About the memory of an event."""
    match event:
        case TextDelta(text, tokens):
            return _EVENT_BYTES + len(text) + _tokens_bytes(tokens)
        case PromptLogprobs(tokens):
            return _EVENT_BYTES + _tokens_bytes(tokens)
        case Embedding(vector):
            return _EVENT_BYTES + int(vector.nbytes)
    return _EVENT_BYTES


def _tokens_bytes(tokens: tuple[TokenInfo, ...]) -> int:
    return _TOKEN_BYTES * sum(1 + len(token.top_logprobs) for token in tokens)
