"""``Matcher``: one sequence's position in a grammar."""

from __future__ import annotations

from math import inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .completion import FULL_WORK, CompletionSearch, complete_by_tokens
from .errors import GrammarTooComplexError
from .masks.masks import Masks, bit
from .masks.vocabulary import Mask, Vocabulary
from .pushdown.context_table import Context
from .pushdown.parser_stack import BYTE_SPANS, BYTES, ParserStack
from .pushdown.pushdown_table import PushdownTable
from .pushdown.rows import DEAD
from .pushdown.tables import BEGIN, CONTEXT, LENGTH, STATE

_MAX_FORCED = 4096


class MatchedGrammar(Protocol):
    """The part of a grammar that a matcher uses."""

    vocab: Vocabulary
    masks: Masks
    completions: CompletionSearch

    @property
    def is_crowded(self) -> bool: ...

    def renewed(self) -> MatchedGrammar: ...

    def relaxed(self) -> MatchedGrammar: ...

    def settle(self) -> None: ...

    def matcher(self) -> Matcher: ...


class Matcher:
    """Follows one sequence's tokens. Not thread-safe."""

    __slots__ = (
        "_accepted", "_counts", "_grammar", "_parser_stack", "_pushdown", "_relaxed", "is_finished"
    )  # fmt: skip

    is_finished: bool
    """Whether an end token was accepted; nothing may follow."""

    def __init__(
        self,
        grammar: MatchedGrammar,
        pushdown: PushdownTable,
        parser_stack: ParserStack,
        counts: list[tuple[tuple[int, int], ...]] | None = None,
    ) -> None:
        """``counts`` are the parser stack's, by position, where tokens are counted; None: it is
        new."""
        self._grammar = grammar
        self._pushdown = pushdown
        self._parser_stack = parser_stack
        self.is_finished = False
        self._relaxed: Matcher | None = None
        # What was accepted, by position: tokens' ids, or bytes.
        self._accepted: list[int | bytes] = []
        # By position, the number of tokens that have begun in each part with a bound.
        self._counts = counts or []
        if pushdown.token_bounds is not None and counts is None:
            with pushdown.lock:
                self._count(by_bytes=False)

    def fill_mask(self, row: Mask) -> None:
        """Writes the allowed next tokens.

        Args:
            row: int32[ceil(vocab_size / 32)]; bit i of word j allows token 32 * j + i. Words
                past the vocabulary's are cleared.
        """
        self._fill_within(inf, row)

    def try_mask(self, row: Mask, seconds: float) -> bool:
        """``fill_mask`` within about ``seconds``; False, with ``row`` undefined, if it takes
        longer."""
        return self._fill_within(seconds, row)

    def _fill_within(self, seconds: float, row: Mask) -> bool:
        if self.is_finished:
            row[:] = 0
            return True
        grammar = self._grammar
        if not grammar.masks.fill_known(self._parser_stack, row):
            if grammar.is_crowded:
                if seconds != inf:
                    return False
                self._leave_tables()
            if not self._grammar.masks.fill(self._parser_stack, row, seconds=seconds):
                return False
        if self._pushdown.has_special:
            self._add_special(row)
        return True

    def fill_mask_in_background(self, row: Mask) -> None:
        """``fill_mask`` for a background thread: other matchers of the grammar aren't blocked."""
        if self._grammar.is_crowded and not self.is_finished:
            self._leave_tables()
        if self.is_finished:
            row[:] = 0
            return
        self._grammar.masks.fill_in_background(self._parser_stack, row)
        if self._pushdown.has_special:
            self._add_special(row)

    def _add_special(self, row: Mask) -> None:
        for token_id in self._special():
            row[token_id >> 5] |= bit(token_id)

    def accept(self, token_id: int) -> bool:
        """Advances by one token. False, and unchanged, if the token is not allowed."""
        vocab = self._grammar.vocab
        if self.is_finished or not 0 <= token_id < vocab.size:
            return False
        with self._pushdown.lock:
            if vocab.tokens[token_id] is None:
                return self._accept_special(token_id)
            if not self._pushdown.advance(self._parser_stack, vocab.data, vocab.spans, token_id):
                return False
            self._step(token_id)
        return True

    def _leave_tables(self) -> None:
        """Switches to new tables that hold only what this text needs."""
        grammar = self._grammar.renewed()
        other = grammar.matcher()
        for accepted in self._accepted[: self._parser_stack.at]:
            if isinstance(accepted, bytes):
                taken = other.accept_bytes(accepted)
            else:
                taken = other.accept(accepted)
            assert taken, "what was accepted once is accepted again"
        grammar.settle()
        self._grammar, self._pushdown = grammar, other._pushdown
        self._parser_stack, self._counts = other._parser_stack, other._counts

    def _step(self, accepted: int | bytes) -> None:
        kept = self._accepted
        if len(kept) > self._parser_stack.at:  # Tokens were taken back.
            del kept[self._parser_stack.at :]
        kept.append(accepted)
        self._parser_stack.step()
        if self._pushdown.token_bounds is not None:
            self._count(by_bytes=isinstance(accepted, bytes))

    def _count(self, *, by_bytes: bool) -> None:
        bounds, parser_stack = self._pushdown.token_bounds, self._parser_stack
        assert bounds is not None
        del self._counts[parser_stack.at :]
        before = self._counts[-1] if self._counts else ()
        self._counts.append(
            bounds.count(self._pushdown, parser_stack.position, before, by_bytes=by_bytes)
        )

    def accept_bytes(self, data: bytes) -> bool:
        """Advances by some bytes, as by a token. False, and unchanged, if they don't match."""
        if self.is_finished:
            return False
        self._parser_stack.reserve(len(data))
        with self._pushdown.lock:
            text = np.frombuffer(bytearray(data), np.uint8)
            span = np.array([[0, len(data)]], np.int64)
            if not self._pushdown.advance(self._parser_stack, text, span, 0):
                return False
            self._step(data)
        return True

    def rollback(self, num_tokens: int) -> None:
        """Takes back the last ``num_tokens`` accepted tokens; an end token counts as one."""
        num_accepted = self._parser_stack.at + self.is_finished
        if not 0 <= num_tokens <= num_accepted:
            raise ValueError(f"can't take back {num_tokens} of {num_accepted} accepted tokens")
        if num_tokens:
            self._parser_stack.at -= num_tokens - self.is_finished
            self.is_finished = False

    def forced_bytes(self) -> bytes:
        """The longest text that any match must continue with."""
        if self.is_finished:
            return b""
        found = bytearray()
        with self._pushdown.lock:
            parser_stack = self._parser_stack.copy()
            while len(found) < _MAX_FORCED:
                if self._pushdown.is_accepting(parser_stack):
                    break
                if self._pushdown.has_special and self._special_at(parser_stack):
                    break
                following = self._next_bytes(parser_stack, 2)
                if len(following) != 1:
                    break
                (byte,) = following
                if not self._pushdown.advance(parser_stack, BYTES, BYTE_SPANS, byte):
                    break
                parser_stack.step()
                found.append(byte)
        return bytes(found)

    def shortest_completion(self) -> bytes:
        """The bytes of a shortest text that completes the output from here.

        Shortest in bytes for required properties, lengths, numbers of items and patterns; where
        alternatives exclude each other it is short, though not always shortest. Always valid.

        Raises:
            GrammarTooComplexError: none is found within the search's limits, or it needs special
                tokens (see ``completion``).
        """
        found = bytearray()
        for piece in self.completion():
            text = piece if isinstance(piece, bytes) else self._grammar.vocab.tokens[piece]
            if text is None:
                reason = "the completion needs special tokens"
                raise GrammarTooComplexError("", "complete", reason)
            found += text
        return bytes(found)

    def completion(self, *, max_work: int = FULL_WORK) -> list[bytes | int]:
        """``shortest_completion`` as texts and the ids of tokens between them; the search visits
        at most ``max_work`` lexeme states.

        The tokens are special ones; where the grammar has bounds on tokens, all are given by id.
        """
        if self.is_finished:
            return []
        if self._pushdown.token_bounds is None:
            with self._pushdown.lock:
                return self._grammar.completions.shortest(self._parser_stack, max_work=max_work)
        relaxed = self._without_bounds().fork()
        return list(complete_by_tokens(self.fork(), relaxed, self._grammar.vocab, max_work))

    @property
    def num_lacking(self) -> int:
        """How many more tokens a text with a bound on them needs at least before it may end."""
        bounds = self._pushdown.token_bounds
        return bounds.num_lacking(self._counts[self._parser_stack.at]) if bounds is not None else 0

    def _without_bounds(self) -> Matcher:
        """A matcher at the same position of the grammar without bounds on tokens; kept."""
        if self._relaxed is None:
            self._relaxed = self._grammar.relaxed().matcher()
        relaxed, accepted = self._relaxed, self._accepted[: self._parser_stack.at]
        known = relaxed._accepted[: relaxed._parser_stack.at]
        if known != accepted[: len(known)]:
            pairs = enumerate(zip(known, accepted, strict=False))
            common = next((i for i, (a, b) in pairs if a != b), min(len(known), len(accepted)))
            relaxed.rollback(len(known) - common)
        for item in accepted[relaxed._parser_stack.at :]:
            if isinstance(item, bytes):
                taken = relaxed.accept_bytes(item)
            else:
                taken = relaxed.accept(item)
            assert taken, "without bounds, all is accepted that was with them"
        return relaxed

    @property
    def text(self) -> bytes:
        """All that was accepted, special tokens left out."""
        return self._parser_stack.text[: int(self._parser_stack.position[LENGTH])].tobytes()

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        if self.is_finished:
            return True
        with self._pushdown.lock:
            return self._pushdown.is_accepting(self._parser_stack)

    def could_end(self, num_tokens: int, text: bytes) -> bool:
        """Whether the output would be complete with ``text`` in place of its last ``num_tokens``
        tokens; an end token counts as one."""
        other = self.fork()
        other.rollback(num_tokens)
        return (not text or other.accept_bytes(text)) and other.is_accepting

    def fork(self) -> Matcher:
        """An independent matcher at the same position."""
        counts = self._counts.copy()
        other = Matcher(self._grammar, self._pushdown, self._parser_stack.copy(), counts)
        other._accepted = self._accepted.copy()
        other.is_finished = self.is_finished
        return other

    def expected(self) -> str:
        """What may come next, in words."""
        with self._pushdown.lock:
            following = self._next_bytes(self._parser_stack, 256)
        words = _describe(following)
        if self.is_accepting:
            words.append("the end")
        return " or ".join(words) if words else "nothing"

    def _next_bytes(self, parser_stack: ParserStack, limit: int) -> list[int]:
        """The bytes that may come next, at most ``limit`` of them."""
        pushdown = self._pushdown
        candidates: set[int] = set()
        for row in pushdown.borders(parser_stack):
            state = int(row[STATE])
            with pushdown.state_table.lock:
                pushdown.state_table.make_ready(state)
                allowed = pushdown.state_table.rows[state] != DEAD
            candidates.update(np.flatnonzero(allowed).tolist())
        found: list[int] = []
        for byte in sorted(candidates):
            if pushdown.advance(parser_stack, BYTES, BYTE_SPANS, byte):
                found.append(byte)
                if len(found) == limit:
                    break
        return found

    def _special(self) -> dict[int, tuple[Context, NDArray[np.int64]]]:
        """The special tokens that may come next: what follows each, and the border it is at."""
        with self._pushdown.lock:
            return self._special_at(self._parser_stack)

    def _special_at(
        self, parser_stack: ParserStack
    ) -> dict[int, tuple[Context, NDArray[np.int64]]]:
        pushdown = self._pushdown
        offered: dict[int, tuple[Context, NDArray[np.int64]]] = {}
        for row in pushdown.borders(parser_stack):
            context = pushdown.context_list[int(row[CONTEXT])]
            if context.offers_special and row[BEGIN] == row[LENGTH]:
                for token_id, after in context.special(pushdown).items():
                    offered[token_id] = after, row.copy()
        return offered

    def _accept_special(self, token_id: int) -> bool:
        offer = self._special().get(token_id) if self._pushdown.has_special else None
        if offer is not None:
            after, border = offer
            parser_stack = self._parser_stack
            parser_stack.positions[parser_stack.at + 1] = border
            self._pushdown.place(
                parser_stack.positions[parser_stack.at + 1], self._pushdown.intern(after)
            )
            self._step(token_id)
            return True
        if token_id not in self._grammar.vocab.eos_ids or not self.is_accepting:
            return False
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
