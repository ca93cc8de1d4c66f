"""``Matcher``: one sequence's position in a grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .automaton import DEAD, Context
from .machine import END_LABEL, READY, Machine
from .vocabulary import Mask

if TYPE_CHECKING:
    from .grammar import Grammar

_MAX_FORCED = 4096


class Position(NamedTuple):
    """A lexeme state, a place (see ``Machine.place``), and the offset at which the lexeme began."""

    state: int
    place: int
    begin: int


class Matcher:
    """Follows one sequence's tokens. Not to be used from two threads at once."""

    __slots__ = ("_grammar", "_history", "_machine", "_position", "_text", "is_finished")

    is_finished: bool
    """Whether an end token was accepted; nothing may follow."""

    def __init__(self, grammar: Grammar, machine: Machine, position: Position) -> None:
        self._grammar = grammar
        self._machine = machine
        self._position = position
        self._text = bytearray()
        self._history: list[tuple[Position, int]] = []
        self.is_finished = False

    def fill_mask(self, row: Mask) -> None:
        """Write the allowed next tokens.

        Args:
            row: int32[ceil(vocab_size / 32)]; bit i of word j allows token 32 * j + i. Words
                past the vocabulary's are cleared.
        """
        if self.is_finished:
            row[:] = 0
            return
        mask = self._grammar.mask_at(self._position, self._text)
        if len(row) == len(mask):
            row[:] = mask
        else:
            row[: len(mask)] = mask
            row[len(mask) :] = 0
        if self._machine.has_special:
            for token_id in self._special():
                row[token_id >> 5] |= np.uint32(1 << (token_id & 31)).astype(np.int32)

    def accept(self, token_id: int) -> bool:
        """Go on by one token. False, and unchanged, if the token is not allowed."""
        vocab = self._grammar.vocab
        if self.is_finished or not 0 <= token_id < vocab.size:
            return False
        with self._machine.lock:
            token = vocab.tokens[token_id]
            if token is None:
                return self._accept_special(token_id)
            position = self._grammar.advance(self._position, self._text, token)
            if position is None:
                return False
        self._history.append((self._position, len(self._text)))
        self._text += token
        self._position = position
        return True

    def accept_bytes(self, data: bytes) -> bool:
        """Go on by some text, as if it were a token. False, and unchanged, if it doesn't match."""
        if self.is_finished:
            return False
        with self._machine.lock:
            position = self._grammar.advance(self._position, self._text, data)
        if position is None:
            return False
        self._history.append((self._position, len(self._text)))
        self._text += data
        self._position = position
        return True

    def rollback(self, num_tokens: int) -> None:
        """Take back the last ``num_tokens`` accepted tokens, an end token included."""
        if not 0 <= num_tokens <= len(self._history):
            raise ValueError(
                f"can't take back {num_tokens} of {len(self._history)} accepted tokens"
            )
        if num_tokens:
            self._position, length = self._history[-num_tokens]
            del self._history[-num_tokens:]
            del self._text[length:]
            self.is_finished = False

    def forced_bytes(self) -> bytes:
        """The longest text that any match must continue with."""
        if self.is_finished:
            return b""
        position, text = self._position, bytearray(self._text)
        length = len(text)
        with self._machine.lock:
            while len(text) - length < _MAX_FORCED:
                if self._machine.is_accepting(*position[:2], text, position.begin):
                    break
                if self._machine.has_special and self._special_at(position, text):
                    break
                following = self._next_bytes(position, text, 2)
                if len(following) != 1:
                    break
                byte = bytes(following)
                moved = self._grammar.advance(position, text, byte)
                if moved is None:
                    break
                position = moved
                text += byte
        return bytes(text[length:])

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        if self.is_finished:
            return True
        with self._machine.lock:
            return self._machine.is_accepting(
                self._position.state, self._position.place, self._text, self._position.begin
            )

    def fork(self) -> Matcher:
        """An independent matcher at the same position."""
        other = Matcher(self._grammar, self._machine, self._position)
        other._text = self._text.copy()
        other._history = self._history.copy()
        other.is_finished = self.is_finished
        return other

    def expected(self) -> str:
        """What may come next, in words."""
        with self._machine.lock:
            following = self._next_bytes(self._position, self._text, 256)
        words = _describe(following)
        if self.is_accepting:
            words.append("the end")
        return " or ".join(words) if words else "nothing"

    def _next_bytes(self, position: Position, text: bytearray, limit: int) -> list[int]:
        """The bytes that may come next, at most ``limit`` of them."""
        machine = self._machine
        state, place, begin = position
        candidates: set[int] = set()
        while True:
            if not machine.states[state, READY]:
                machine.fill(state)
            candidates.update(np.flatnonzero(machine.rows[state] != DEAD).tolist())
            label = int(machine.states[state, END_LABEL])
            if label < 0 or not machine.is_live(machine.context_at(place).id, label):
                break
            place = machine.follow(place, label, text, begin, len(text))
            if place < 0:
                break
            state, begin = machine.start_of(place), len(text)
        found: list[int] = []
        for byte in sorted(candidates):
            if self._grammar.advance(position, text, bytes((byte,))) is not None:
                found.append(byte)
                if len(found) == limit:
                    break
        return found

    def _border_places(self, position: Position, text: bytearray) -> list[int]:
        """The places at whose contexts' beginning a position after ``text`` is."""
        machine = self._machine
        state, place, begin = position
        found = []
        if begin == len(text):
            found.append(place)
        while True:
            if not machine.states[state, READY]:
                machine.fill(state)
            label = int(machine.states[state, END_LABEL])
            if label < 0 or not machine.is_live(machine.context_at(place).id, label):
                return found
            place = machine.follow(place, label, text, begin, len(text))
            if place < 0:
                return found
            found.append(place)
            state, begin = machine.start_of(place), len(text)

    def _special(self) -> dict[int, tuple[Context, int]]:
        """The special tokens that may come next: what follows each, and its stack."""
        with self._machine.lock:
            return self._special_at(self._position, self._text)

    def _special_at(self, position: Position, text: bytearray) -> dict[int, tuple[Context, int]]:
        machine = self._machine
        offered: dict[int, tuple[Context, int]] = {}
        for place in self._border_places(position, text):
            context = machine.context_at(place)
            if context.offers_special:
                stack = machine.context_and_stack(place)[1]
                for token_id, after in context.special(machine).items():
                    offered[token_id] = after, stack
        return offered

    def _accept_special(self, token_id: int) -> bool:
        after = self._special().get(token_id) if self._machine.has_special else None
        if after is not None:
            context = self._machine.intern(after[0])
            state = self._machine.enter(context)
            self._history.append((self._position, len(self._text)))
            place = self._machine.place(context.id, after[1])
            self._position = Position(state, place, len(self._text))
            return True
        if token_id not in self._grammar.vocab.eos_ids or not self.is_accepting:
            return False
        self._history.append((self._position, len(self._text)))
        self.is_finished = True
        return True


def _describe(following: list[int]) -> list[str]:
    """Bytes as words: runs of printable characters, and the rest in hexadecimal."""
    words: list[str] = []
    start = 0
    while start < len(following):
        end = start
        while end + 1 < len(following) and following[end + 1] == following[end] + 1:
            end += 1
        low, high = following[start], following[end]
        shown = [repr(chr(b)) if 0x20 <= b < 0x7F else f"byte 0x{b:02x}" for b in (low, high)]
        words.append(shown[0] if low == high else f"{shown[0]} to {shown[1]}")
        start = end + 1
    return words
