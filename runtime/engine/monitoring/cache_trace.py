"""Cache traces: which prefixes were requested when, without text, to replay against a cache.

A trace is compressed JSON lines. A line with ``format`` begins a recording; every other line is a
request, in the order in which they ended. Full pages of tokens are numbered as they first appear,
so a request is described by the last page that earlier lines have named and how many pages follow
it: equal numbers are equal prefixes, and a number reveals nothing of the tokens. Prefixes under
different salts are different pages.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.request import ProgramHint, Request
from ramet.trusted_files import append_trusted

logger = logging.getLogger("ramet.trace")

_FORMAT = 1
_MAX_PAGES = 1 << 20
"""Most pages of a recording, as each takes memory; the recording ends there."""
_FLUSH_EVERY = 64


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request of a trace.

    Attributes:
        time_s: when it was submitted, from the recording's beginning.
        pages: its full pages, prompt and output, as numbers.
        num_prompt_tokens, num_output_tokens: its lengths.
        program: the number of the program run that sent it; -1: none did.
        place: the number of its program and node, equal in all runs of a program; -1: the program
            has no name.
        steps_to_next_use, remaining_uses: what its hint said, if it had one.
        tool: the next call waits for a tool.
    """

    time_s: float
    pages: tuple[int, ...]
    num_prompt_tokens: int
    num_output_tokens: int
    program: int
    place: int
    steps_to_next_use: int | None
    remaining_uses: int | None
    tool: bool


class TraceWriter:
    """Writes requests as they end; recordings are added to a file that exists already.

    A disk that refuses ends the recording with a warning, and nothing else.

    Raises:
        InvalidParameterError: the file can't be opened for writing, or another user may write to
            it.
    """

    def __init__(self, path: str | Path, page_size: int, start_s: float) -> None:
        self._path = path
        self._page_size = page_size
        self._start_s = start_s
        self._key = secrets.token_bytes(
            16
        )  # so that digests can't be compared with those of guessed text
        self._pages: dict[bytes, int] = {}
        self._programs: dict[str, int] = {}
        self._places: dict[tuple[str, str], int] = {}
        self._num_lines = 0
        try:
            self._raw = append_trusted(path)
            self._file: gzip.GzipFile | None = gzip.GzipFile(fileobj=self._raw, mode="ab")
        except OSError as error:
            raise InvalidParameterError(
                f"the trace can't be written: {error}", param="record_trace"
            ) from None
        self._write({"format": _FORMAT, "page_size": page_size})

    def add(
        self, request: Request, known: npt.NDArray[np.int32], num_output: int, submit_s: float
    ) -> None:
        """Adds a request that has ended with these tokens, prompt and output.

        No model has read the last one, so it is on no page yet.
        """
        if self._file is None:
            return
        last, num_new = self._place(known[:-1], request.cache_salt)
        hint = request.hint or ProgramHint(program_id="")
        program = place = -1
        if hint.program_id:
            program = self._programs.setdefault(hint.program_id, len(self._programs))
        if hint.program:
            place = self._places.setdefault((hint.program, hint.node_id), len(self._places))
        record = (
            round(submit_s - self._start_s, 3),
            last,
            num_new,
            len(known) - num_output,
            num_output,
            program,
            place,
            hint.steps_to_next_use,
            hint.remaining_uses,
            int(bool(hint.tool)),
        )
        self._write(record)
        if len(self._pages) > _MAX_PAGES:
            logger.warning("the trace %s is full; nothing more is recorded", self._path)
            self.close()

    def close(self) -> None:
        """Ends the recording."""
        file, self._file = self._file, None
        self._pages.clear()
        if file is not None:
            try:
                with self._raw:
                    file.close()
            except OSError as error:
                logger.warning("the end of the trace %s was not written: %s", self._path, error)

    def _place(self, known: npt.NDArray[np.int32], salt: str) -> tuple[int, int]:
        """The last page that is known already, or -1, and how many new ones follow."""
        size = self._page_size
        digest = hashlib.blake2b(salt.encode(), key=self._key, digest_size=16).digest()
        last = -1
        num_before = len(self._pages)
        for start in range(0, len(known) - size + 1, size):
            page = known[start : start + size].tobytes()
            digest = hashlib.blake2b(digest + page, key=self._key, digest_size=16).digest()
            number = self._pages.setdefault(digest, len(self._pages))
            if number < num_before:
                last = number
        return last, len(self._pages) - num_before

    def _write(self, record: object) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(record, separators=(",", ":")).encode() + b"\n")
            self._num_lines += 1
            if self._num_lines % _FLUSH_EVERY == 0:
                self._file.flush()
        except OSError as error:
            logger.warning("the trace %s ends here: %s", self._path, error)
            self.close()


def read_trace(path: str | Path) -> list[TracedRequest]:
    """The requests of a trace, in the order in which they were submitted.

    The end of a recording that was cut off is left out. ValueError if it is no trace.
    """
    requests: list[TracedRequest] = []
    parents: list[int] = []
    first = num_programs = num_places = 0  # of the recordings before
    offset = 0.0
    for record in _records(path):
        if isinstance(record, dict):
            if record.get("format") != _FORMAT:
                raise ValueError(f"{os.fspath(path)} is not a trace of a known format")
            first = len(parents)
            num_programs = 1 + max((each.program for each in requests), default=-1)
            num_places = 1 + max((each.place for each in requests), default=-1)
            offset = max((each.time_s for each in requests), default=0.0)
            continue
        time_s, last, num_new, num_prompt, num_output, program, place, *hints = record
        steps, uses, tool = hints
        page = -1 if last < 0 else first + last
        for _ in range(num_new):
            parents.append(page)
            page = len(parents) - 1
        requests.append(
            TracedRequest(
                offset + time_s,
                _path_to(page, parents),
                num_prompt,
                num_output,
                program if program < 0 else num_programs + program,
                place if place < 0 else num_places + place,
                steps,
                uses,
                bool(tool),
            )
        )
    return sorted(requests, key=lambda each: each.time_s)


def _records(path: str | Path) -> Iterator[dict[str, int] | list[int]]:
    with gzip.open(path, "rb") as file:
        try:
            for line in file:
                yield json.loads(line)
        except EOFError:
            return


def _path_to(page: int, parents: list[int]) -> tuple[int, ...]:
    path = []
    while page >= 0:
        path.append(page)
        page = parents[page]
    return tuple(reversed(path))
