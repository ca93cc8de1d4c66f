"""Events that nobody reads are counted; where they are too many, their own stream is dropped."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import InvariantError, SlowReaderError
from ramet.runtime.api.events import Failed, Finished, TextDelta, Timings, TokenInfo, Usage
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.api.request import Request
from ramet.runtime.engine.requests.request_stream import RequestStream, Wakeups
from ramet.runtime.engine.requests.unread_answers import UnreadAnswers, event_bytes

DELTA = TextDelta("x" * 100, (TokenInfo(1, b"x"),))
SIZE = event_bytes(DELTA)
END = Finished("stop", Usage(), Timings())


class Streams:
    """Streams that share a part for ten events."""

    def __init__(self) -> None:
        self.part = MemoryPart("answers", 10 * SIZE)
        self.unread = UnreadAnswers(self.part)
        self.aborted: list[str] = []

    def stream(self) -> RequestStream:
        request = Request(prompt_token_ids=(1,))
        stream = RequestStream(request, abort=self.aborted.append, wakeups=Wakeups())
        stream.limit_unread(self.unread)
        return stream


def test_the_slowest_reader_is_dropped_and_the_others_go_on() -> None:
    streams = Streams()
    slow, fast = streams.stream(), streams.stream()
    for _ in range(9):
        slow.push(DELTA)
    for _ in range(30):
        fast.push(DELTA)
        assert fast.take() == [DELTA]
    fast.push(DELTA)
    fast.push(DELTA)  # the eleventh
    [failed] = slow.take()
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, SlowReaderError)
    assert f"left {9 * SIZE} bytes unread" in failed.error.message
    assert streams.aborted == [slow.request_id]
    slow.push(DELTA)  # the engine's, on the way until the abort arrives
    slow.push(END)
    assert slow.take() == []
    fast.push(END)
    assert fast.take() == [DELTA, DELTA, END]
    assert (streams.part.num_bytes, streams.part.usage().num_refused) == (0, 1)


def test_what_is_read_or_abandoned_is_not_counted() -> None:
    streams = Streams()
    stream, abandoned = streams.stream(), streams.stream()
    stream.push(DELTA)
    abandoned.push(DELTA)
    assert streams.part.num_bytes == 2 * SIZE
    assert next(iter(stream)) == DELTA
    assert streams.part.num_bytes == SIZE
    abandoned.abort()
    abandoned.push(END)
    assert streams.part.num_bytes == 0
    stream.push(END)
    with pytest.raises(InvariantError, match="not kept"):
        stream.result()
    assert streams.part.num_bytes == 0
