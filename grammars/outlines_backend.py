"""outlines-core as an alternative backend for the masks of regular constraints.

It computes an index of the allowed tokens of all states when a constraint is compiled; Ramet's own
tables compute masks on demand. A pattern that it reads differently from its dialect is refused: its
automaton over single bytes must equal Ramet's.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
from outlines_core import Index
from outlines_core import Vocabulary as OutlinesVocabulary

from .constraints import Choice, Constraint, Regex
from .errors import ConstraintError, EmptyConstraintError
from .grammar import Grammar
from .limits import CompileLimits
from .masks.context_independent import new_context_independent_masks
from .masks.vocabulary import Mask, Vocabulary
from .matcher import Matcher
from .pushdown.automaton import Whole
from .pushdown.lexemes import DfaLexeme
from .pushdown.parser_stack import ParserStack
from .pushdown.pushdown_table import PushdownTable
from .regular import Dfa, literals, regex_dfa

_BYTE_EOS = 256

_CLASS = re.compile(r"((?<!\\)(?:\\\\)*)\\([dws])")
_ASCII_CLASSES = {"d": "[0-9]", "w": "[A-Za-z0-9_]", "s": r"[ \t\n\r\f\v]"}
"""ASCII classes as outlines-core reads them, inside another class too."""


class OutlinesGrammar(Grammar):
    """A regular constraint whose masks come from an outlines-core index."""

    def __init__(self, dfa: Dfa, index: Index, vocab: Vocabulary, limits: CompileLimits) -> None:
        super().__init__(
            lambda _: Whole(DfaLexeme(dfa)), new_context_independent_masks(vocab, limits), limits
        )
        self.index = index
        self._index_masks: dict[int, Mask] = {}

    def matcher(self) -> Matcher:
        return OutlinesMatcher(self, self._pushdown, self.parser_stack())

    def index_mask(self, state: int) -> Mask:
        """The mask of a state of the index. Not to be written to."""
        mask = self._index_masks.get(state)
        if mask is None:
            ids = set(self.index.get_allowed_tokens(state)) - set(self.vocab.eos_ids)
            if self.index.is_final_state(state):
                ids.update(self.vocab.eos_ids)
            bits = np.zeros(32 * self.vocab.num_words, np.bool_)
            bits[list(ids)] = True
            mask = np.packbits(bits, bitorder="little").view(np.int32)
            self._index_masks[state] = mask
        return mask


class OutlinesMatcher(Matcher):
    """A sequence's position, in the index and in Ramet's own pushdown table alike."""

    __slots__ = ("_indexed", "_states")

    def __init__(
        self, grammar: OutlinesGrammar, pushdown: PushdownTable, parser_stack: ParserStack
    ) -> None:
        super().__init__(grammar, pushdown, parser_stack)
        self._indexed = grammar
        self._states: list[int] = [grammar.index.get_initial_state()]

    def fill_mask(self, row: Mask) -> None:
        row[:] = 0
        if not self.is_finished:
            mask = self._indexed.index_mask(self._states[-1])
            row[: len(mask)] = mask

    def accept(self, token_id: int) -> bool:
        if not super().accept(token_id):
            return False
        state = self._states[-1]
        if not self.is_finished:
            after = self._indexed.index.get_next_state(state, token_id)
            assert after is not None, "the index and the automaton are equal"
            state = after
        self._states.append(state)
        return True

    def accept_bytes(self, data: bytes) -> bool:  # noqa: ARG002
        raise TypeError("an outlines-core index has transitions by tokens, not by bytes")

    def rollback(self, num_tokens: int) -> None:
        super().rollback(num_tokens)
        del self._states[len(self._states) - num_tokens :]

    def fork(self) -> Matcher:
        other = OutlinesMatcher(self._indexed, self._pushdown, self._parser_stack.copy())
        other._states = self._states.copy()
        other.is_finished = self.is_finished
        return other


def compile_with_outlines(
    constraint: Constraint, vocab: Vocabulary, *, limits: CompileLimits | None = None
) -> OutlinesGrammar:
    """A grammar of a regular constraint, by outlines-core.

    Raises:
        ConstraintError: a constraint that isn't regular, or a pattern that outlines-core can't
            read or reads in another way.
        GrammarTooComplexError: over the limits.
    """
    limits = limits or CompileLimits()
    match constraint:
        case Regex(pattern, dialect, classes):
            narrow = classes == "ascii"
            dfa = regex_dfa(pattern, dialect=dialect, narrow=narrow, limits=limits.regular)
            if narrow:
                pattern = _CLASS.sub(lambda c: c[1] + _ASCII_CLASSES[c[2]], pattern)
        case Choice(choices):
            dfa = literals(choices, limits.regular)
            pattern = "|".join(map(re.escape, choices))
        case _:
            raise ConstraintError(
                "", constraint.kind, "outlines-core takes only regular constraints"
            )
    if dfa.is_empty:
        raise EmptyConstraintError("", constraint.kind, "no text matches")
    if len(vocab.eos_ids) == 0:
        raise ConstraintError("", "eos_ids", "outlines-core needs a token that ends the text")
    index = Index(_exact_form(pattern, dfa), _outlines_vocabulary(vocab))
    return OutlinesGrammar(dfa, index, vocab, limits)


def _exact_form(pattern: str, dfa: Dfa) -> str:
    """A pattern that outlines-core takes to mean exactly ``dfa``."""
    reason = "it reads this pattern differently"
    # Without the anchor an index follows only the options that a search would prefer; with it,
    # one that may match nothing fails.
    for form in (rf"(?:{pattern})\z", f"(?:{pattern})"):
        try:
            if _byte_language(Index(form, _byte_vocabulary())) == dfa:
                return form
        except ValueError as error:
            reason = str(error)
    raise ConstraintError("", "regex", f"outlines-core: {reason}")


def _outlines_vocabulary(vocab: Vocabulary) -> OutlinesVocabulary:
    ids: dict[bytes, list[int]] = {}
    for token_id, token in enumerate(vocab.tokens):
        if token is not None:
            ids.setdefault(token, []).append(token_id)
    return OutlinesVocabulary(vocab.eos_ids[0], ids)


@lru_cache(maxsize=1)
def _byte_vocabulary() -> OutlinesVocabulary:
    return OutlinesVocabulary(_BYTE_EOS, {bytes((byte,)): [byte] for byte in range(256)})


def _byte_language(index: Index) -> Dfa:
    """The language of an index over single bytes."""
    transitions = index.get_transitions()
    numbers = {index.get_initial_state(): 0}
    queue = list(numbers)
    for state in queue:  # Grows on the way.
        for token_id, target in transitions.get(state, {}).items():
            if token_id != _BYTE_EOS and target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
    table = np.full((len(numbers), 256), -1, np.int32)
    for state, number in numbers.items():
        for token_id, target in transitions.get(state, {}).items():
            if token_id != _BYTE_EOS:
                table[number, token_id] = numbers[target]
    accepting = np.array([index.is_final_state(state) for state in queue])
    return Dfa.from_table(np.arange(256), table, accepting)
