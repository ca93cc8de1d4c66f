"""Recorded loads, from a file in one of three formats.

JSON lines, one request each:

* ``{"timestamp": ms, "input_length": n, "output_length": n, "hash_ids": [...]}``: Mooncake's traces
  (https://github.com/kvcache-ai/Mooncake). Each hash id is a block of 512 tokens, so requests with
  the same ids share a prefix; the tokens themselves are random.
* ``{"at_s": s, "prompt": text}`` or ``{"at_s": s, "messages": [...]}``, with ``max_tokens`` if
  wanted; ``at_s`` may be left out.

One JSON list of ``{"conversations": [{"from": "human", "value": text}, ...]}``: ShareGPT's format.
The human turns are sent in order, each after the answer to the last.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from ramet.bench.job import Job, Message, Pace
from ramet.bench.workloads.base import Option, PacedLoad, RandomTokens
from ramet.bench.workloads.natural_text import MaxOutputLen, messages_of
from ramet.lang.base.errors import UsageError

MOONCAKE_BLOCK = 512
"""Tokens of a block of Mooncake's traces."""


@dataclass(frozen=True, kw_only=True)
class TraceFile(PacedLoad):
    """A recorded load: FILE in Mooncake's, ShareGPT's or Ramet's format."""

    name: ClassVar[str] = "trace"
    file: Path
    requests: Annotated[int, Option("Most requests, from the file's beginning.")] = 256
    output_len: MaxOutputLen = 128
    speed: Annotated[float, Option("Divides the recorded times.", 0.001)] = 1.0

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        number = -1
        for number, job in enumerate(self._all_jobs(tokens)):
            if number == self.requests:
                return
            yield job
        if number < 0:
            raise UsageError(f"there are no requests in {self.file}")

    def pace(self) -> Pace:
        return Pace(
            concurrency=self.concurrency, rate=self.rate, burst=self.burst, speed=self.speed
        )

    def _all_jobs(self, tokens: RandomTokens) -> Iterator[Job]:
        try:
            text = self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"can't read the trace {self.file}: {error}") from None
        if text.lstrip().startswith("["):
            yield from self._conversations(_parsed(text, str(self.file)))
            return
        first: float | None = None
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            place = f"{self.file}, line {number}"
            record = _parsed(line, place)
            if not isinstance(record, dict):
                raise UsageError(f"{place}: not an object")
            at_s = _time(record, place)
            if at_s is not None:
                first = at_s if first is None else first
                at_s = max(0.0, at_s - first)
            yield self._job(record, at_s, tokens, place)

    def _job(
        self, record: dict[str, Any], at_s: float | None, tokens: RandomTokens, place: str
    ) -> Job:
        if self.rate is not None:
            at_s = None
        if "hash_ids" not in record:
            limit = _count(record, "max_tokens", place) if "max_tokens" in record else None
            return Job(messages_of(record, place), limit or self.output_len, at_s=at_s)
        length = _count(record, "input_length", place)
        blocks = [tokens(MOONCAKE_BLOCK, "block", each) for each in record["hash_ids"]]
        prompt = tuple(token for block in blocks for token in block)[:length]
        prompt += tokens(length - len(prompt), "rest", place)
        return Job(prompt, _count(record, "output_length", place), at_s=at_s)

    def _conversations(self, records: list[Any]) -> Iterator[Job]:
        index = 0
        for number, record in enumerate(records):
            turns = record.get("conversations") if isinstance(record, dict) else None
            if not isinstance(turns, list):
                raise UsageError(f"{self.file}[{number}]: no list 'conversations'")
            last: int | None = None
            for turn in turns:
                match turn:
                    case {"from": "human" | "user", "value": str(text)} if text:
                        yield Job((Message("user", text),), self.output_len, after=last)
                        last = index
                        index += 1
                    case {"from": str(), "value": str()}:
                        continue
                    case _:
                        raise UsageError(
                            f"{self.file}[{number}]: a turn without a text 'from' and 'value'"
                        )


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UsageError(f"{place}: not valid JSON: {error}") from None


def _time(record: dict[str, Any], place: str) -> float | None:
    """When a request was sent, in seconds: ``at_s``, or Mooncake's ``timestamp`` in ms."""
    for key, unit in (("at_s", 1.0), ("timestamp", 1000.0)):
        if (value := record.get(key)) is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise UsageError(f"{place}: {key} is not a time")
            return value / unit
    return None


def _count(record: dict[str, Any], key: str, place: str) -> int:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{place}: {key} is not a positive number")
    return value
