"""Completions of outputs with bounds on the tokens of some part: token by token.

How such an output may go on depends on where its tokens begin, which bytes don't show. So the
shortest text that bytes allow is spelled in tokens of the vocabulary, each of which the matcher
must accept. A text that lacks tokens gets some first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.masks.vocabulary import Mask, Vocabulary

from .search_nodes import Piece

_MAX_SEARCHES = 64
_MAX_TOKENS = 4_096
_FILLERS = (b" a", b"a", b"0", b" ")
"""Texts of tokens that are preferred where any may come."""


class TokenMatcher(Protocol):
    """What is asked of a matcher."""

    @property
    def is_accepting(self) -> bool: ...

    @property
    def num_lacking(self) -> int: ...

    def fill_mask(self, row: Mask) -> None: ...

    def accept(self, token_id: int) -> bool: ...

    def completion(self, *, max_work: int = ...) -> list[Piece]: ...


def complete_by_tokens(
    matcher: TokenMatcher, relaxed: TokenMatcher, vocab: Vocabulary, max_work: int
) -> list[int]:
    """The ids of tokens that complete the output.

    Args:
        matcher: a fork, which accepts these tokens.
        relaxed: a matcher of the same grammar without the bounds, at the same position; likewise.
        vocab: the vocabulary.
        max_work: how many lexeme states each search may look at.

    Raises:
        GrammarTooComplexError: none is found within the search's limits.
    """
    ids: list[int] = []

    def accept(token_id: int) -> bool:
        if not matcher.accept(token_id):
            return False
        assert relaxed.accept(token_id), "bounds allow no token that the grammar refuses"
        ids.append(token_id)
        return True

    for _ in range(_MAX_SEARCHES):
        if matcher.is_accepting:
            return ids
        for _ in range(matcher.num_lacking):
            _fill(matcher, vocab, accept)
        num_before = len(ids)
        for piece in relaxed.completion(max_work=max_work):
            is_taken = accept(piece) if isinstance(piece, int) else _spell(piece, vocab, accept)
            if not is_taken:
                break  # a text lacks tokens, or has too many
        is_stuck = len(ids) == num_before and not _fill(matcher, vocab, accept)
        if is_stuck or len(ids) > _MAX_TOKENS:
            break
    raise GrammarTooComplexError("", "complete", "no completion was found in good time")


def _spell(text: bytes, vocab: Vocabulary, accept: Callable[[int], bool]) -> bool:
    """Accepts a text as its longest tokens; False from where none is allowed."""
    at = 0
    while at < len(text):
        ends = range(min(len(text), at + vocab.max_token_len), at, -1)
        ids = (vocab.id_of(text[at:end]) for end in ends)
        found = next((i for i in ids if i is not None and accept(i)), None)
        if found is None:
            return False
        at += len(vocab.tokens[found] or b"")
    return True


def _fill(matcher: TokenMatcher, vocab: Vocabulary, accept: Callable[[int], bool]) -> bool:
    """Accepts one token of any text."""
    if any((i := vocab.id_of(text)) is not None and accept(i) for text in _FILLERS):
        return True
    row = vocab.empty_mask()
    matcher.fill_mask(row)
    allowed = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
    return any(accept(token_id) for token_id in allowed.tolist())
