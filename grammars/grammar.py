"""``Grammar``: a compiled constraint for one vocabulary."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from .completion import CompletionSearch
from .errors import GrammarTooComplexError
from .limits import CompileLimits
from .masks.context_independent import ContextIndependentMasks, new_context_independent_masks
from .masks.masks import Masks
from .matcher import Matcher
from .preparation import Preparation
from .pushdown.context_table import Context
from .pushdown.parser_stack import ParserStack
from .pushdown.pushdown_table import PushdownTable

_NUM_CHECKED = 8
"""Transitions that are computed when compiling, so that a schema's errors are found then."""

_CHECK_S = 0.01
"""How long that may take; the rest is computed while the prompt is read."""

_SHARE_OF_LIMITS = 8
"""Tables are replaced when they reach this fraction of the limits (see ``Grammar.is_crowded``)."""


@dataclass(frozen=True)
class MatchResult:
    """What ``Grammar.match`` found.

    Attributes:
        accepted: the whole text matches.
        offset: the first wrong byte, or the text's length if more must follow; None if accepted.
        expected: what may stand there, in words; "" if accepted.
    """

    accepted: bool
    offset: int | None = None
    expected: str = ""

    def __bool__(self) -> bool:
        return self.accepted


class Grammar:
    """An immutable, shareable compiled constraint. Its caches are invisible.

    Attributes:
        vocab: the vocabulary that its masks are for.
        masks: fills its masks.
        context_independent: the parts of masks and the lexemes that it may share with other
            grammars.
        for_text: a grammar that is exact for one text where this one's masks allow a part of what
            the constraint accepts; None if this one is exact.
        completions: finds what completes an output.
        preparation: computes likely parts of masks in advance.
    """

    def __init__(
        self,
        start: Callable[[PushdownTable], Context],
        context_independent: ContextIndependentMasks,
        limits: CompileLimits,
        like: PushdownTable | None = None,
    ) -> None:
        """``context_independent`` may be shared with other grammars of the vocabulary. ``like``, if
        given, is a pushdown table over their state table that has contexts of which this grammar
        needs some."""
        self.vocab = context_independent.vocab
        self.context_independent = context_independent
        self.for_text: Callable[[bytes], Grammar | None] = lambda _: None
        self._limits = limits
        self._make_start = start
        self._successor: Grammar | None = None
        self._relaxed: Grammar | None = None
        self._successor_lock = threading.Lock()
        self._many_states = limits.max_states // _SHARE_OF_LIMITS
        self._many_contexts = limits.max_contexts // _SHARE_OF_LIMITS
        self._pushdown = (
            PushdownTable(limits, context_independent.state_table)
            if like is None
            else PushdownTable.like(like)
        )
        with self._pushdown.lock:
            context = self._pushdown.intern(start(self._pushdown))
            self._start = self._pushdown.first_position(context)
        room = limits.max_contexts // _SHARE_OF_LIMITS // 2
        self.preparation = Preparation(self._pushdown, context_independent, room)
        self.preparation.check(_NUM_CHECKED, _CHECK_S)
        self.masks = Masks(self._pushdown, context_independent)
        self.completions = CompletionSearch(self._pushdown)
        # The first mask is needed in any case: its parts are computed now.
        self.masks.fill(self.parser_stack(), self.vocab.empty_mask())

    @property
    def num_states(self) -> int:
        """Lexeme states that have been made so far, for this grammar and those it shares with."""
        return self._pushdown.state_table.num_states

    @property
    def num_contexts(self) -> int:
        """Contexts that have been made so far."""
        return self._pushdown.num_contexts

    @property
    def num_texts_requested(self) -> int:
        """How often a lexeme's transition was computed for its text alone."""
        return self._pushdown.num_texts_requested

    @property
    def num_bytes(self) -> int:
        """Approximate memory in addition to what it shares with others."""
        own = self._pushdown.num_bytes + self.completions.num_bytes
        return own + (self._relaxed.num_bytes if self._relaxed is not None else 0)

    @property
    def is_crowded(self) -> bool:
        """Whether its tables, or those it shares, are so large that sequences should leave them.

        States made for one text (values that must differ, readings of an ambiguous grammar) are of
        little use to others. A sequence leaves by ``renewed``, so a limit is only ever reached by
        the needs of a single text.
        """
        pushdown = self._pushdown
        return (
            pushdown.state_table.num_states > self._many_states
            or pushdown.num_contexts > self._many_contexts
        )

    def renewed(self) -> Grammar:
        """The same grammar with tables of its own."""
        with self._successor_lock:
            if self._successor is None or self._successor.is_crowded:
                context_independent = new_context_independent_masks(self.vocab, self._limits)
                self._successor = Grammar(self._make_start, context_independent, self._limits)
            return self._successor

    def relaxed(self) -> Grammar:
        """The grammar without its bounds on tokens, in which completions are searched for."""
        with self._successor_lock:
            if self._relaxed is None:
                bounds = self._pushdown.token_bounds
                assert bounds is not None
                context_independent = new_context_independent_masks(self.vocab, self._limits)
                self._relaxed = Grammar(bounds.relaxed_start, context_independent, self._limits)
            return self._relaxed

    def settle(self) -> None:
        """Raises the bounds of ``is_crowded`` to twice the present size, which one text needs."""
        self._many_states = max(self._many_states, 2 * self._pushdown.state_table.num_states)
        self._many_contexts = max(self._many_contexts, 2 * self._pushdown.num_contexts)

    def matcher(self) -> Matcher:
        """A new sequence's position, at the beginning of the text."""
        return Matcher(self, self._pushdown, self.parser_stack())

    def parser_stack(self) -> ParserStack:
        """A new sequence's parser stack."""
        return ParserStack(self._start, self.vocab.max_token_len)

    def match(self, text: str | bytes, *, max_seconds: float = inf) -> MatchResult:
        """Whether the whole text matches; needs no model and no tokens.

        GrammarTooComplexError if that takes longer than ``max_seconds``, or more than the limits
        that the grammar was compiled with.
        """
        data = text.encode() if isinstance(text, str) else text
        exact = self.for_text(data)
        if exact is not None:
            return exact.match(data, max_seconds=max_seconds)
        matcher = Matcher(self, self._pushdown, self.parser_stack())
        end = time.monotonic() + max_seconds
        for at in range(len(data)):
            if time.monotonic() > end:
                raise GrammarTooComplexError(
                    "", "text", f"after {at} of {len(data)} bytes {max_seconds:g} s have passed"
                )
            if not matcher.accept_bytes(data[at : at + 1]):
                return MatchResult(False, at, matcher.expected())
        if matcher.is_accepting:
            return MatchResult(True)
        return MatchResult(False, len(data), matcher.expected())

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Grammar is not pickled; keep the constraint and compile it again")
