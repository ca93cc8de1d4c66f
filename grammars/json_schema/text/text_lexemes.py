"""Lexemes of JSON strings, from just after the opening quote.

A string closes with one of its labels. ``Closing`` decides what the closing quote leads to: a value
ends there, a property's name continues with its colon.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.pushdown.json_text import KEY_SLICE, slice_tables
from ramet.grammars.pushdown.labelled_dfa import LabelledDfa
from ramet.grammars.pushdown.lexemes import Branch, install_head
from ramet.grammars.pushdown.rows import DEAD, LAZY, Row, ended
from ramet.grammars.pushdown.state_table import UNBOUNDED_ROOM, Lexeme, StateTable
from ramet.grammars.pushdown.tables import NAME_LABEL, REACH, ROOM, ROOM_LABEL, SLICE

from .open_states import open_states

QUOTE, BACKSLASH, COLON = 0x22, 0x5C, 0x3A


class Closing:
    """A value's closing quote: the lexeme ends with it. Labels aren't filtered."""

    key: Hashable = "value"
    filtered = False
    ends_value = True
    """Whether the quote is the lexeme's last byte."""

    def targets(self, state_table: StateTable, num_labels: int) -> NDArray[np.int32]:
        """int32[num_labels or more]: by label, the row's entry for a string's closing quote."""
        return ended(0) - np.arange(num_labels, dtype=np.int32)

    def target(self, state_table: StateTable, label: int) -> int:
        """The row's entry for the closing quote of a string with this label."""
        return ended(label)


class FilteredClosing(Closing):
    """A value's closing quote where several labels are distinguished, and some may be dead."""

    key: Hashable = "filtered value"
    filtered = True


class KeyClosing(Closing):
    """A name's closing quote: white space and a colon follow, and end the lexeme."""

    filtered = True
    ends_value = False

    def __init__(self, layout: Layout) -> None:
        self.key = ("key", layout.kind)
        self._may_have_space = len(layout.before_colon()) > 1

    def targets(self, state_table: StateTable, num_labels: int) -> NDArray[np.int32]:
        known = state_table.tables.get(self.key)
        if known is None or len(known) < num_labels:
            start = 0 if known is None else len(known)
            more = self._install(state_table, range(start, max(num_labels, 2 * start, 32)))
            known = more if known is None else np.concatenate([known, more])
            state_table.tables[self.key] = known
        return known

    def target(self, state_table: StateTable, label: int) -> int:
        return int(self.targets(state_table, label + 1)[label])

    def _install(self, state_table: StateTable, labels: range) -> NDArray[np.int32]:
        """Two states for each label: before a space and the colon, and before the colon alone."""
        first = state_table.new_states(2 * len(labels))
        sets = np.array([state_table.bit_set(1 << label) for label in labels], np.int32)
        rows = state_table.rows[first : state_table.num_states]
        states = state_table.states[first : state_table.num_states]
        rows[:] = DEAD
        rows[:, COLON] = np.repeat(ended(0) - np.array(labels, np.int32), 2)
        after_quote = np.arange(first, state_table.num_states, 2, dtype=np.int32)
        if self._may_have_space:
            rows[::2, 0x20] = after_quote + 1
        states[:, REACH] = np.repeat(sets, 2)
        states[::2, NAME_LABEL] = labels
        return after_quote


class TextLexeme(Lexeme):
    """A string's body, the closing quote included. ``slice`` is the spelling that it allows.

    ``is_written`` says whether all its rows are written when it is installed.
    """

    closing: Closing
    slice: int
    is_written: bool = False
    _keyed: dict[object, KeyLexeme] | None = None

    def keyed(
        self, prefixes: tuple[bytes, ...], close_prefixes: tuple[bytes, ...] | None
    ) -> KeyLexeme:
        """These strings as an object's names, with white space before them."""
        if self._keyed is None:
            self._keyed = {}
        key = (prefixes, close_prefixes)
        known = self._keyed.get(key)
        if known is None:
            known = self._keyed[key] = KeyLexeme(self, prefixes, close_prefixes)
        return known


class KeyLexeme(Lexeme):
    """A property's name and its colon, or, if ``close_prefixes`` is given, the closing brace."""

    def __init__(
        self,
        text: TextLexeme,
        prefixes: tuple[bytes, ...],
        close_prefixes: tuple[bytes, ...] | None,
    ) -> None:
        self.text = text
        self.prefixes = prefixes
        self.close_prefixes = close_prefixes
        self.key = ("key", text.key, prefixes, close_prefixes)

    def install(self, state_table: StateTable) -> int:
        start = state_table.install(self.text)
        state_table.fresh.append(start)
        bits = state_table.bits_at(int(state_table.states[start, REACH]))
        branches: list[Branch] = [(self.prefixes, {QUOTE: start}, bits)]
        if self.close_prefixes is not None:
            branches.append((self.close_prefixes, {0x7D: ended(0)}, 1))
        return install_head(state_table, branches)


class AnyText(TextLexeme):
    """Every string."""

    is_written = True

    def __init__(self, closing: Closing, label: int, slice_: int) -> None:
        self.closing = closing
        self.label = label
        self.slice = slice_
        self.key = ("any text", closing.key, label, slice_)

    def install(self, state_table: StateTable) -> int:
        body = slice_tables()[self.slice]
        first = state_table.new_states(len(body))
        rows = state_table.rows[first : state_table.num_states]
        np.add(body, first, out=rows)
        rows[body < 0] = DEAD
        states = state_table.states[first : state_table.num_states]
        states[0, ROOM] = UNBOUNDED_ROOM
        states[0, SLICE] = self.slice
        if self.closing.filtered:
            states[0, ROOM_LABEL] = self.label
            states[:, REACH] = state_table.bit_set(1 << self.label)
        # The target may itself need new states, and so move the arrays.
        target = self.closing.target(state_table, self.label)
        state_table.rows[first, QUOTE] = target
        return first


@cache
def _templates(slice_: int) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """By mode of a body: where a character ends, and the row but for those entries."""
    body = slice_tables()[slice_]
    return body == 0, np.where(body < 0, DEAD, LAZY).astype(np.int32)


_RUN = 16
"""So many borders of a bounded string are written at once."""

_INNER = 2
"""The states inside a bounded string's first characters are written with the borders, since tokens
from before the string get there."""


class BoundedText(TextLexeme):
    """Strings of ``low`` to ``high`` code points. State (count, mode) is count * modes + mode; the
    borders, of mode 0, are written in runs."""

    has_edges = True

    def __init__(
        self, closing: Closing, label: int, low: int, high: int | None, slice_: int
    ) -> None:
        self.closing = closing
        self.label = label
        self.low = low
        self.high = high
        self.slice = slice_
        self.body = slice_tables()[slice_]
        self.key = ("bounded text", closing.key, label, low, high, slice_)

    def install(self, state_table: StateTable) -> int:
        return self._border(state_table, 0)

    def _border(self, state_table: StateTable, count: int) -> int:
        """The state after ``count`` whole characters."""
        if self.high is None and count >= self.low:
            return state_table.install(self._unbounded())
        run, at = divmod(count, _RUN)
        known = state_table.tables.get((self.key, run))
        if known is None:
            known = state_table.tables[self.key, run] = self._new_run(state_table, run * _RUN)
        return int(known[at])

    def _new_run(self, state_table: StateTable, start: int) -> NDArray[np.int32]:
        """The states after ``start`` characters and more, as many as there are up to a run."""
        num_modes = len(self.body)
        num_borders = self.low if self.high is None else self.high + 1
        size = min(_RUN, num_borders - start)
        target = self.closing.target(state_table, self.label)
        unbounded = state_table.install(self._unbounded())
        first = state_table.new_states(size)
        ends, otherwise = _templates(self.slice)
        rows, states = (
            state_table.rows[first : first + size],
            state_table.states[first : first + size],
        )
        rows[:] = otherwise[0]
        after = np.arange(first + 1, first + size + 1, dtype=np.int32)
        after[-1] = LAZY if start + size < num_borders else unbounded
        rows[:, ends[0]] = after[:, None]
        num_inner = min(_INNER, size) if start == 0 else 0
        if start + size == num_borders and self.high is not None:
            rows[-1] = DEAD
            num_inner = min(num_inner, size - 1)
        rows[max(0, self.low - start) :, QUOTE] = target
        counts = np.arange(start, start + size)
        states[:, ROOM] = UNBOUNDED_ROOM if self.high is None else self.high - counts
        states[:, SLICE] = self.slice
        if self.closing.filtered:
            states[:, ROOM_LABEL] = self.label
            states[:, REACH] = state_table.bit_set(1 << self.label)
        self._write_inner(state_table, first, after[:num_inner])
        for state, count in enumerate(range(start, start + size), first):
            state_table.has_edges(state, self, count * num_modes)
            if count >= self.low:
                state_table.closes_as[state] = unbounded
        return np.arange(first, first + size, dtype=np.int32)

    def _write_inner(self, state_table: StateTable, borders: int, after: NDArray[np.int32]) -> None:
        """The states inside the characters that begin at some borders, and the ways there.

        ``after`` are the borders after those characters.
        """
        body = self.body
        size = len(body) - 1
        block = state_table.new_states(len(after) * size)
        reach = state_table.states[borders, REACH]
        state_table.states[block : block + len(after) * size, REACH] = reach
        inner = body[0] > 0
        for border, next_border in enumerate(after.tolist(), borders):
            targets = np.where(body > 0, body + (block - 1), np.where(body < 0, DEAD, next_border))
            state_table.rows[block : block + size] = targets[1:]
            state_table.rows[border, inner] = targets[0, inner]
            block += size

    def _unbounded(self) -> AnyText:
        return AnyText(self.closing, self.label, self.slice)

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        count, mode = divmod(local, len(self.body))
        ends, otherwise = _templates(self.slice)
        np.copyto(row, otherwise[mode])
        if ends[mode].any():
            np.copyto(row, self._border(state_table, count + 1), where=ends[mode])
        return -1

    def edge(self, state_table: StateTable, local: int, byte: int, row: Row) -> None:
        count, mode = divmod(local, len(self.body))
        target = int(self.body[mode, byte])
        if target == 0:
            state = self._border(state_table, count + 1)
        else:
            state = state_table.reserve(self, count * len(self.body) + target)
            if self.closing.filtered:
                state_table.states[state, REACH] = state_table.bit_set(1 << self.label)
        row[(self.body[mode] == target) & (row == LAZY)] = state


MOST_PREPARED = 32
"""Of so many states of an automaton, the nearest to the start, the masks are prepared."""


def mark_open(state_table: StateTable, first: int, is_open: NDArray[np.bool_]) -> None:
    """Note in which states from ``first`` on no text stops inside the string."""
    states = state_table.states[first : first + len(is_open)]
    states[is_open, ROOM] = UNBOUNDED_ROOM
    states[is_open, SLICE] = KEY_SLICE
    reach = states[is_open, REACH]
    states[is_open, ROOM_LABEL] = np.where(reach < 0, -1, -2 - reach)


def is_endless(state_table: StateTable, state: int) -> bool:
    """Whether each text from a state has infinitely many completions, all with one label: that
    label can still be reached after any few strings are excluded."""
    room, labels = state_table.states[state, [ROOM, ROOM_LABEL]].tolist()
    return room == UNBOUNDED_ROOM and (
        labels >= -1 or state_table.bits_at(-2 - labels).bit_count() < 2
    )


class DfaText(TextLexeme):
    """The strings of labelled bodies (see ``json_string_body``).

    Names' rows are written when it is installed, since texts are laid over them; a value's as they
    are read.
    """

    slice = KEY_SLICE

    def __init__(self, closing: Closing, bodies: LabelledDfa, key: Hashable) -> None:
        self.closing = closing
        self.bodies = bodies
        self.is_written = isinstance(closing, KeyClosing)
        self.key = ("dfa text", closing.key, key)

    def install(self, state_table: StateTable) -> int:
        labels = self.bodies.labels
        size = len(labels)
        if self.closing.filtered:
            reach = state_table.new_bit_sets(self.bodies.reachable())
        if self.is_written:
            first = self._write_all(state_table)
        else:
            first = state_table.reserve_block(self, size)
        if self.closing.filtered:
            state_table.states[first : first + size, REACH] = reach
        mark_open(state_table, first, open_states(self.bodies.table, self.bodies.class_of))
        state_table.fresh.extend(range(first, first + min(size, MOST_PREPARED)))
        return first

    def _write_all(self, state_table: StateTable) -> int:
        transitions, labels = self.bodies.transitions, self.bodies.labels
        first = state_table.new_states(len(transitions))
        rows = state_table.rows[first : state_table.num_states]
        np.add(transitions, first, out=rows)
        rows[transitions < 0] = DEAD
        for label in sorted({label for label in labels.tolist() if label >= 0}):
            target = self.closing.target(state_table, label)
            state_table.rows[first : first + len(transitions)][labels == label, QUOTE] = target
        return first

    def fill(self, state_table: StateTable, local: int, row: Row) -> int:
        write_row(state_table.install(self), self.bodies.table[local], self.bodies.class_of, row)
        label = int(self.bodies.labels[local])
        if label >= 0:
            row[QUOTE] = self.closing.target(state_table, label)
        return -1


def write_row(
    first: int, targets: NDArray[np.int32], class_of: NDArray[np.uint8], row: Row
) -> None:
    """Write the row of an automaton's state whose transitions by class are ``targets``; the
    automaton's state 0 is ``first``."""
    np.take(np.where(targets >= 0, targets + np.int32(first), np.int32(DEAD)), class_of, out=row)
