"""A ``PushdownTable`` is a grammar's contexts with the positions of texts in them.

The arrays are what compiled code reads. What it requests is computed and added to them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .context_table import Context, ContextTable
from .parser_stack import NUM_COLUMNS, Frozen, ParserStack
from .pointers import table_addresses
from .tables import (
    BEGIN,
    CONTEXT,
    DONE,
    IS_END,
    KEY,
    LIVE,
    LIVE_AT,
    NEED_EDGE,
    NEED_ROW,
    NEED_TEXT,
    NEED_TRANSITION,
    REFUSED,
    REQUESTED,
    REQUESTED_DETAIL,
    REQUESTED_END,
    STATE,
    UNKNOWN,
    USED,
)
from .transitions import advance, leave


class PushdownTable(ContextTable):
    """The contexts of one grammar, and the transitions of positions among them."""

    @property
    def table(self) -> NDArray[np.int64]:
        """The arrays that compiled code reads, in the order of ``tables.ROWS`` and those after."""
        state_table = self.state_table
        version = state_table.version + self._version
        if version != self._table_of:
            self._table = table_addresses(
                state_table.rows, state_table.states, self.contexts, self.transitions,
                state_table.words,
                self.pushes, self.plans,
            )  # fmt: skip
            self._table_of = version
        return self._table

    # -- positions --------------------------------------------------------------------------

    def first_position(self, context: Context) -> NDArray[np.int64]:
        """int64[NUM_COLUMNS]: the beginning of an interned context, with nothing around it."""
        row = np.zeros(NUM_COLUMNS, np.int64)
        self.place(row, context)
        row[USED] = 1
        return row

    def place(self, row: NDArray[np.int64], context: Context) -> None:
        """Moves a position to the beginning of an interned context."""
        row[STATE] = self.enter(context)
        row[CONTEXT] = context.id
        row[LIVE_AT] = self.contexts[context.id, LIVE]

    def frozen(self, parser_stack: ParserStack) -> Frozen:
        """The current position by its content (see ``ParserStack.thaw``)."""
        context = self.context_list[int(parser_stack.position[CONTEXT])]
        keeps_text = context.captures or context.kind == KEY
        return parser_stack.freeze(self.plans, keeps_text=keeps_text)

    def supply(self, status: int, parser_stack: ParserStack, row: NDArray[np.int64]) -> int:
        """Compute what compiled code has requested in ``row``.

        Returns:
            The transition, if it was requested with a text; else ``UNKNOWN``.
        """
        requested, detail = row[REQUESTED : REQUESTED_DETAIL + 1].tolist()
        if status == NEED_TRANSITION:
            self.transition(requested, detail)
        elif status == NEED_ROW:
            self.state_table.fill(requested)
        elif status == NEED_EDGE:
            self.state_table.edge(requested, detail)
        elif status == NEED_TEXT:
            text = parser_stack.text[row[BEGIN] : row[REQUESTED_END]].tobytes()
            return self.transition_after(requested, detail, text)
        else:
            parser_stack.more_frames()
        return UNKNOWN

    def advance(
        self,
        parser_stack: ParserStack,
        data: NDArray[np.uint8],
        spans: NDArray[np.int64],
        index: int,
    ) -> bool:
        """Advances by some bytes: writes their position behind the parser stack's current one.

        ``spans[index]`` is their range in ``data``: the first, and the one past the last. The
        parser stack has room for them. False if they aren't allowed.
        """
        resume, supplied = 0, UNKNOWN
        while True:
            with self.state_table.lock:
                status = advance(
                    parser_stack.positions, parser_stack.at, data, spans, index, resume, supplied,
                    parser_stack.frames,
                    parser_stack.text, self.table,
                )  # fmt: skip
            if status == DONE:
                return True
            if status == REFUSED:
                return False
            resume, supplied = (
                1,
                self.supply(status, parser_stack, parser_stack.positions[parser_stack.at + 1]),
            )

    def leave(self, parser_stack: ParserStack, at: int) -> bool:
        """Ends the lexeme of ``positions[at]`` and writes the position to the next row.

        False if the lexeme can't end there.
        """
        supplied = UNKNOWN
        while True:
            with self.state_table.lock:
                status = leave(
                    parser_stack.positions,
                    at,
                    supplied,
                    parser_stack.frames,
                    parser_stack.text,
                    self.table,
                )
            if status == DONE:
                return True
            if status == REFUSED:
                return False
            supplied = self.supply(status, parser_stack, parser_stack.positions[at + 1])

    def borders(self, parser_stack: ParserStack) -> Iterator[NDArray[np.int64]]:
        """The current position, then each position after another lexeme that can end there."""
        at = parser_stack.at
        yield parser_stack.positions[at]
        while self.leave(parser_stack, at):
            at += 1
            parser_stack.make_room(at)
            yield parser_stack.positions[at]

    def is_accepting(self, parser_stack: ParserStack) -> bool:
        """Whether the text may end at the current position."""
        return any(self.contexts[row[CONTEXT], IS_END] for row in self.borders(parser_stack))
