"""``ParserStack``: one sequence's current and earlier positions in a grammar."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .stack_records import ARRAY, BELOW, KIND, NAMES, NUM_WORDS, SEEN
from .tables import BEGIN, CONTEXT, LENGTH, LIVE_AT, STACK, STATE, USED

NUM_COLUMNS = 10
BYTES = np.arange(256, dtype=np.uint8)
BYTE_SPANS = np.stack([np.arange(256), np.arange(1, 257)], axis=1)
"""All bytes as data and spans, as ``PushdownTable.advance`` takes them."""

_FIRST_POSITIONS, _FIRST_FRAMES, _FIRST_TEXT = 64, 256, 256


class Frozen(NamedTuple):
    """A position by its content: equal for equal positions, independent of what came before.

    Attributes:
        records: from the bottom of the stack up, each with the names that an object remembers;
            both without indices.
        live: as in a position, but relative to the top of the stack if below -1.
        text: the current lexeme's, if it matters.
    """

    state: int
    context: int
    live: int
    records: tuple[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], ...]
    text: bytes


class ParserStack:
    """A sequence's positions, one after each token, as arrays for compiled code.

    Attributes:
        positions: int64[capacity, NUM_COLUMNS]; see ``transitions.py``. There is room for two more.
        at: the row of the current position.
        frames: int64[capacity]: records; see ``stack_records.py``.
        text: uint8[capacity]: the text so far, and room for ``spare`` bytes more.
        spare: the length of the longest token, at least.
    """

    __slots__ = ("at", "frames", "positions", "spare", "text")

    def __init__(self, start: NDArray[np.int64], spare: int) -> None:
        """``start`` is the first position, int64[NUM_COLUMNS]."""
        self.positions: NDArray[np.int64] = np.empty((_FIRST_POSITIONS, NUM_COLUMNS), np.int64)
        self.positions[0] = start
        self.at = 0
        self.frames: NDArray[np.int64] = np.empty(_FIRST_FRAMES, np.int64)
        self.spare = spare
        self.text: NDArray[np.uint8] = np.empty(_FIRST_TEXT + spare, np.uint8)

    def copy(self) -> ParserStack:
        """An independent parser stack at the same position."""
        other = object.__new__(ParserStack)
        other.positions = self.positions.copy()
        other.at = self.at
        other.frames = self.frames.copy()
        other.text = self.text.copy()
        other.spare = self.spare
        return other

    def snapshot(self) -> ParserStack:
        """An independent parser stack that begins at the current position, with the current
        lexeme's text and no earlier positions."""
        position = self.position
        begin, length, used = (int(position[column]) for column in (BEGIN, LENGTH, USED))
        other = ParserStack(position, self.spare)
        other.position[BEGIN], other.position[LENGTH] = 0, length - begin
        while len(other.frames) < used:
            other.more_frames()
        other.frames[:used] = self.frames[:used]
        other.reserve(self.spare)
        other.text[: length - begin] = self.text[begin:length]
        return other

    @property
    def position(self) -> NDArray[np.int64]:
        """int64[NUM_COLUMNS]: the current position."""
        position: NDArray[np.int64] = self.positions[self.at]
        return position

    def step(self) -> None:
        """Makes the position after the current one the current one."""
        self.at += 1
        self.make_room(self.at)
        if self.positions[self.at, LENGTH] + self.spare > len(self.text):
            self.text = _doubled(self.text)

    def make_room(self, at: int) -> None:
        """Make room for two positions after ``positions[at]``."""
        if at + 2 >= len(self.positions):
            self.positions = _doubled(self.positions)

    def reserve(self, num_bytes: int) -> None:
        """Make room for a longer text after the current position."""
        while int(self.positions[self.at, LENGTH]) + num_bytes > len(self.text):
            self.text = _doubled(self.text)

    def more_frames(self) -> None:
        """Make room for more records."""
        self.frames = _doubled(self.frames)

    def freeze(self, plans: NDArray[np.int32], *, keeps_text: bool) -> Frozen:
        """The current position by its content; see ``thaw``."""
        row = self.position.tolist()
        records = []
        stack, live = row[STACK], row[LIVE_AT]
        if live < -1:
            live += stack
        while stack != 0:
            below, what = self.frames[stack : stack + 2].tolist()
            size = 2
            names: list[tuple[int, ...]] = []
            if what >= 0:
                size = SEEN + 1 + 2 * int(plans[what + NUM_WORDS])
                if plans[what + KIND] == ARRAY:
                    size = 3
                else:
                    name = int(self.frames[stack + NAMES])
                    while name != 0:
                        end = name + 3 + (int(self.frames[name + 1]) >> 3)
                        names.append(tuple(self.frames[name + 1 : end].tolist()))
                        name = int(self.frames[name])
            record = self.frames[stack : stack + size].tolist()
            record[BELOW] = 0
            if size > 3:
                record[NAMES] = 0
            records.append((tuple(record), tuple(sorted(names))))
            stack = below
        text = bytes(self.text[row[BEGIN] : row[LENGTH]]) if keeps_text else b""
        return Frozen(row[STATE], row[CONTEXT], live, tuple(reversed(records)), text)

    @classmethod
    def thaw(cls, frozen: Frozen, spare: int) -> ParserStack:
        """A parser stack whose only position is one that was frozen."""
        state, context, live, records, text = frozen
        parser_stack = cls(np.zeros(NUM_COLUMNS, np.int64), spare)
        words = [0]
        stack = 0
        for record, names in records:
            last = 0
            for name in names:
                words += [last, *name]
                last = len(words) - 1 - len(name)
            top = len(words)
            words += record
            words[top + BELOW] = stack
            if len(record) > 3:
                words[top + NAMES] = last
            stack = top
        while len(parser_stack.frames) < 2 * len(words):
            parser_stack.more_frames()
        parser_stack.frames[: len(words)] = words
        if live < -1:
            live -= stack
        parser_stack.reserve(len(text) + spare)
        parser_stack.text[: len(text)] = np.frombuffer(text, np.uint8)
        row = parser_stack.position
        row[STATE], row[CONTEXT], row[STACK], row[LIVE_AT] = state, context, stack, live
        row[LENGTH], row[USED] = len(text), len(words)
        return parser_stack


def _doubled(array: NDArray) -> NDArray:  # type: ignore[type-arg]
    bigger = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    return bigger
