"""Best-first search for a shortest completion of a position in a grammar.

The search advances from one lexeme's border to the next, and its cost is bytes (a special token
counts as one). Three facts keep it small:

- A value whose surroundings don't matter (a ``LOCAL`` context) has one shortest text, found once.
  Where such a value contains itself, its shortest text does not (Knuth, 1977: *A generalization of
  Dijkstra's algorithm*), so a recursive search is cut off.
- An object's properties may be added in any order: of the required ones that are missing, the
  first is added, and an object or array that may close is closed.
- Equal positions are searched once, however they were reached.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import count, islice

import numpy as np

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.pushdown.automaton import NOTHING, End
from ramet.grammars.pushdown.context_table import After, Context, ContextTable
from ramet.grammars.pushdown.parser_stack import Frozen, ParserStack
from ramet.grammars.pushdown.pushdown_table import PushdownTable
from ramet.grammars.pushdown.stack_records import (
    FIRST_NAME,
    NUM_WORDS,
    REQUIRED,
    SEEN,
    WHAT,
)
from ramet.grammars.pushdown.state_table import Lexeme, LexemeEnd
from ramet.grammars.pushdown.tables import (
    AFTER_ITEMS,
    AFTER_PROPERTY,
    BEGIN,
    CAPTURES,
    CONTEXT,
    CONTEXT_KIND,
    IS_END,
    KEY,
    LENGTH,
    LIVE,
    LIVE_AT,
    LOCAL,
    STACK,
    STATE,
)

from .lexeme_ends import Budget, LexemeEnds, SearchTooLongError
from .search_nodes import Piece, SearchNode, joined, piece_cost, pieces_of

_NODE_WORK = 4
"""A position costs about as much as this many lexeme states."""

FULL_WORK = 20_000
"""Work that finds a completion of almost any schema: about a second, at worst."""
_MAX_REFUSED = 2_000
_MAX_KNOWN = 1_000
_POSITION_BYTES, _ENDS_BYTES = 1_500, 2_000
_CLOSE = 0
"""The label of a closing brace in place of an object's key."""
_COMMA, _CLOSED = 0, 1
"""The labels of what follows a property or an item."""


class CompletionSearch:
    """Finds completions in one grammar. The caller holds the pushdown table's lock."""

    def __init__(self, pushdown: PushdownTable) -> None:
        self._pushdown = pushdown
        self._ends: dict[int, LexemeEnds] = {}
        self._values: dict[int, bytes] = {}
        self._known: OrderedDict[Frozen, tuple[Piece, ...]] = OrderedDict()
        self._failed_work: OrderedDict[Frozen, int] = OrderedDict()
        self._open_values: set[int] = set()
        self._is_cut_off = False
        self._budget = Budget()

    @property
    def num_bytes(self) -> int:
        """About the memory that it takes."""
        num_positions = len(self._known) + len(self._failed_work)
        return _POSITION_BYTES * num_positions + _ENDS_BYTES * (len(self._ends) + len(self._values))

    def shortest(self, parser_stack: ParserStack, *, max_work: int = FULL_WORK) -> list[Piece]:
        """A shortest completion of the parser stack's current position.

        Work is counted, so the answer is the same on every machine.

        Raises:
            GrammarTooComplexError: none is found within the search's limits.
        """
        start = parser_stack.snapshot()
        if len(self._ends) > _MAX_KNOWN:
            self._ends.clear()
        frozen = self._pushdown.frozen(start)
        if max_work <= self._failed_work.get(frozen, 0):
            raise _not_found()
        self._open_values.clear()
        self._is_cut_off = False
        self._budget.left = max_work
        try:
            try:
                goal = self._search(start, self._known)
            except SearchTooLongError:
                self._open_values.clear()
                self._budget.left = max_work
                goal = self._descend(start)
        except SearchTooLongError:
            goal = None
        if goal is None:
            self._failed_work[frozen] = max_work
            if len(self._failed_work) > _MAX_KNOWN:
                self._failed_work.popitem(last=False)
            raise _not_found()
        self._remember(goal)
        return pieces_of(goal)

    def _remember(self, goal: SearchNode) -> None:
        """Keep what completes each border on the way to a goal; most come again."""
        rest: list[Piece] = []
        node: SearchNode | None = goal
        while node is not None:
            if node.frozen is not None:
                self._known[node.frozen] = tuple(joined(rest))
                self._known.move_to_end(node.frozen)
            rest = [*node.pieces, *rest]
            node = node.parent
        while len(self._known) > _MAX_KNOWN:
            self._known.popitem(last=False)

    # -- the search ---------------------------------------------------------------------------

    def _search(
        self, start: ParserStack, known: Mapping[Frozen, tuple[Piece, ...]] | None = None
    ) -> SearchNode | None:
        """The nearest end; ``known`` has what completes positions that were searched before."""
        pushdown = self._pushdown
        order = count()
        queue: list[tuple[int, int, SearchNode, Iterator[SearchNode]]] = []
        seen: set[Frozen] = set()
        heapq.heappush(queue, (0, next(order), SearchNode(start, 0, None), iter(())))
        while queue:
            _, _, node, siblings = heapq.heappop(queue)
            self._push_next(queue, siblings, order)
            if node.is_goal or pushdown.contexts[node.parser_stack.position[CONTEXT], IS_END]:
                return node
            node.frozen = frozen = pushdown.frozen(node.parser_stack)
            if frozen in seen:
                continue
            seen.add(frozen)
            pieces = None if known is None else known.get(frozen)
            if pieces is not None:
                cost = node.cost + sum(map(piece_cost, pieces))
                goal = SearchNode(node.parser_stack, cost, node, *pieces, is_goal=True)
                heapq.heappush(queue, (cost, next(order), goal, iter(())))
                continue
            self._budget.spend(_NODE_WORK)
            self._push_next(queue, self._following(node), order)
        return None

    def _descend(self, start: ParserStack) -> SearchNode | None:
        """Some completion: at each border, the shortest lexeme that the rules above allow."""
        pushdown = self._pushdown
        seen: set[Frozen] = set()
        path = [iter((SearchNode(start, 0, None),))]
        while path:
            self._budget.spend(_NODE_WORK)
            node = next(path[-1], None)
            if node is None:
                path.pop()
                continue
            if pushdown.contexts[node.parser_stack.position[CONTEXT], IS_END]:
                return node
            frozen = pushdown.frozen(node.parser_stack)
            if frozen not in seen:
                seen.add(frozen)
                path.append(self._following(node))
        return None

    @staticmethod
    def _push_next(
        queue: list[tuple[int, int, SearchNode, Iterator[SearchNode]]],
        nodes: Iterator[SearchNode],
        order: count[int],
    ) -> None:
        """Queue the next of some nodes that come cheapest first; the others follow it."""
        node = next(nodes, None)
        if node is not None:
            heapq.heappush(queue, (node.cost, next(order), node, nodes))

    def _following(self, node: SearchNode) -> Iterator[SearchNode]:
        """The positions after the lexeme that a node is in, cheapest first."""
        pushdown, row = self._pushdown, node.parser_stack.position
        this = pushdown.context_list[int(row[CONTEXT])]
        kind = int(pushdown.contexts[this.id, CONTEXT_KIND])
        is_at_begin = bool(row[BEGIN] == row[LENGTH])
        if kind == LOCAL and is_at_begin and not this.may_close and node.parent is not None:
            text = self._value(this)
            if text is None:
                return iter(())
            return self._after_texts(node, iter((LexemeEnd(text, -1, False),)))
        end = this.shortest_end(pushdown, int(row[STATE]))
        if end is not None:
            return self._after_texts(node, iter((end,)))
        ends = self._after_ends(node, self._labels(node.parser_stack, this, kind, is_at_begin))
        if not (is_at_begin and this.offers_special):
            return ends
        return heapq.merge(ends, self._after_special(node, this), key=lambda found: found.cost)

    def _labels(
        self, parser_stack: ParserStack, context: Context, kind: int, is_at_begin: bool
    ) -> list[int] | None:
        """The labels with which a shortest completion ends the lexeme; None: any of them."""
        if kind in (AFTER_PROPERTY, AFTER_ITEMS):
            live = int(parser_stack.position[LIVE_AT])
            is_closing = self._pushdown.state_table.is_live(live, _CLOSED, parser_stack.frames)
            return [_CLOSED if is_closing else _COMMA]
        if not is_at_begin:
            return None
        if kind == KEY:
            return self._key_labels(parser_stack, may_close=context.may_close)
        return context.completing_labels()

    def _key_labels(self, parser_stack: ParserStack, *, may_close: bool) -> list[int]:
        """Of a plain object's keys: its end, or a required key, or else any key."""
        pushdown, frames = self._pushdown, parser_stack.frames
        row = parser_stack.position
        live = pushdown.state_table.live_bits(int(row[LIVE_AT]), frames)
        if may_close and live >> _CLOSE & 1:
            return [_CLOSE]
        live &= ~(1 << _CLOSE)
        record = int(row[STACK])
        plan = int(frames[record + WHAT])
        num_words = int(pushdown.plans[plan + NUM_WORDS])
        seen = int.from_bytes(frames[record + SEEN : record + SEEN + num_words].tobytes(), "little")
        required = pushdown.state_table.bits_at(int(pushdown.plans[plan + REQUIRED]))
        missing = required & ~seen & live
        if missing:
            return [(missing & -missing).bit_length() - 1]
        return [label for label in range(live.bit_length()) if live >> label & 1]

    def _after_ends(self, node: SearchNode, labels: list[int] | None) -> Iterator[SearchNode]:
        """The positions after a lexeme's ends with these labels, cheapest first."""
        pushdown, row = self._pushdown, node.parser_stack.position
        state = int(row[STATE])
        ends = self._ends.get(state)
        if ends is None:
            ends = self._ends[state] = LexemeEnds(pushdown.state_table, state, self._budget)
        live = int(row[LIVE_AT])
        wanted = None if labels is None else set(labels)
        for index in count():
            try:
                end = ends.get(index)
            except SearchTooLongError:
                del self._ends[state]  # its search can't go on from here
                raise
            if end is None or wanted == set():
                return
            if wanted is not None and end.label not in wanted:
                continue
            if not pushdown.state_table.is_live(live, end.label, node.parser_stack.frames):
                continue
            following = self._moved(node, end)
            if following is None and self._depends_on_text(node.parser_stack, end.label):
                texts = ends.all_texts(end.label)
                following = next(self._after_texts(node, texts, _MAX_REFUSED), None)
            if following is not None:
                if wanted is not None:
                    wanted.discard(end.label)
                yield following

    def _depends_on_text(self, parser_stack: ParserStack, label: int) -> bool:
        """Whether another text with this label may be allowed where one is not."""
        pushdown, row = self._pushdown, parser_stack.position
        if pushdown.contexts[row[CONTEXT], CAPTURES]:
            return True
        if pushdown.contexts[row[CONTEXT], CONTEXT_KIND] != KEY:
            return False
        plan = int(parser_stack.frames[int(row[STACK]) + WHAT])
        return label < int(pushdown.plans[plan + FIRST_NAME])

    def _after_texts(
        self, node: SearchNode, ends: Iterator[LexemeEnd], limit: int = 1
    ) -> Iterator[SearchNode]:
        for end in islice(ends, limit):
            following = self._moved(node, end)
            if following is not None:
                yield following

    def _moved(self, node: SearchNode, end: LexemeEnd) -> SearchNode | None:
        """The position after a lexeme's end; None if it isn't allowed."""
        pushdown = self._pushdown
        parser_stack = node.parser_stack.snapshot()
        if end.text:
            parser_stack.reserve(len(end.text))
            text = np.frombuffer(bytearray(end.text), np.uint8)
            if not pushdown.advance(parser_stack, text, np.array([[0, len(text)]], np.int64), 0):
                return None
            parser_stack.step()
        if end.is_open:
            if not pushdown.leave(parser_stack, parser_stack.at):
                return None
            parser_stack.step()
        return SearchNode(parser_stack.snapshot(), node.cost + len(end.text), node, end.text)

    def _after_special(self, node: SearchNode, context: Context) -> Iterator[SearchNode]:
        for token_id, after in context.special(self._pushdown).items():
            parser_stack = node.parser_stack.snapshot()
            self._pushdown.place(parser_stack.position, self._pushdown.intern(after))
            yield SearchNode(parser_stack, node.cost + 1, node, token_id)

    # -- values -------------------------------------------------------------------------------

    def _value(self, context: Context) -> bytes | None:
        """A shortest text of a value that depends on nothing around it.

        None inside that value itself, of which a shortest text has no part.
        """
        known = self._values.get(context.id)
        if known is not None:
            return known
        if context.id in self._open_values:
            self._is_cut_off = True
            return None
        self._open_values.add(context.id)
        try:
            goal = self._search(self._alone(context))
        finally:
            self._open_values.discard(context.id)
        if goal is None:
            return None
        text = b"".join(piece for piece in pieces_of(goal) if isinstance(piece, bytes))
        if not self._open_values:
            self._is_cut_off = False
        if not self._is_cut_off:
            self._values[context.id] = text
        return text

    def _alone(self, context: Context) -> ParserStack:
        """The beginning of a value with nothing around it but the end."""
        pushdown = self._pushdown
        outer = pushdown.intern(_Alone())
        record = ((0, -1 - outer.id), ())
        start = pushdown.enter(context)
        live = int(pushdown.contexts[context.id, LIVE])
        return ParserStack.thaw(Frozen(start, context.id, live, (record,), b""), 1)


class _Alone(Context):
    """What a value is pushed onto to be completed by itself."""

    __slots__ = ()

    @property
    def key(self) -> str:
        return "alone"

    def lexeme(self, pushdown: ContextTable) -> Lexeme | None:
        return NOTHING

    def after(self, pushdown: ContextTable, label: int, text: bytes | None) -> After:
        return pushdown.intern(End()) if label == 0 else None


def _not_found() -> GrammarTooComplexError:
    return GrammarTooComplexError(
        "", "complete", "no completion was found within the limits of the search"
    )
