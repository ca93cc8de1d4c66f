"""Draft-free speculation: continuations guessed from text that is there already.

A guess goes through the model together with the token before it, and a token is drawn at each of
its positions. Draws depend on nothing but seed, position and logits, so a draw that equals the
guess is the very token that a step of its own would have drawn: the output is the same, greedy or
sampled, and only steps are saved. Guesses come from two places: what other requests have left in
the radix cache after the same tokens, and the last place in the sequence itself where its present
ending stood before (prompt look-up, Saxena 2023).
"""

from __future__ import annotations

import math

from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.sequence import Sequence

_NGRAM = 3
_MAX_INDEXED = 8192
_WORTHWHILE = 0.35
"""A guess of k tokens is made where all k are expected to be right with this probability."""
_PROBE_EVERY = 32
_LEARNING_RATE = 0.15


class _Guesser:
    """One sequence's n-grams, and how well its guesses have done."""

    def __init__(self) -> None:
        self.success = 0.7
        self.idle_tokens = 0
        self._last: dict[tuple[int, ...], int] = {}
        self._num_indexed = 0

    def guess_len(self, limit: int) -> int:
        """How many tokens are worth guessing."""
        if self.success >= 0.99:
            return limit
        return min(limit, int(math.log(_WORTHWHILE) / math.log(max(self.success, 1e-3))))

    def look_up(self, sequence: Sequence, count: int) -> list[int]:
        """What followed the last earlier place with the sequence's present ending."""
        size = sequence.num_tokens
        start = max(self._num_indexed, size - _MAX_INDEXED, _NGRAM)
        ids = sequence.token_ids[start - _NGRAM : size].tolist()
        for offset in range(size - start):
            # An n-gram is known by where it ends; the one that ends here must not find itself.
            self._last[tuple(ids[offset : offset + _NGRAM])] = start + offset
        self._num_indexed = max(size, start)
        found = self._last.get(tuple(ids[-_NGRAM:])) if len(ids) >= _NGRAM else None
        if found is None:
            return []
        guess: list[int] = sequence.token_ids[found : min(found + count, size)].tolist()
        return guess


class Drafter:
    """Guesses for any number of sequences; the longest has ``max_len`` tokens."""

    def __init__(self, cache: RadixCache, max_len: int) -> None:
        self._cache = cache
        self._max_len = max_len
        self._guessers: dict[Sequence, _Guesser] = {}

    def guess(self, sequence: Sequence, limit: int) -> list[int]:
        """Up to ``limit`` tokens that may come next."""
        guesser = self._guessers.get(sequence)
        if guesser is None:
            guesser = self._guessers[sequence] = _Guesser()
        count = guesser.guess_len(min(limit, self._max_len))
        if count < 1:
            guesser.idle_tokens += 1
            if guesser.idle_tokens < _PROBE_EVERY or limit < 1:
                return []
            guesser.idle_tokens, count = 0, 1
        held = sequence.held
        guess: list[int] = []
        if held is not None and held.matched_len == sequence.tree_len:
            tail = sequence.token_ids[sequence.tree_len : sequence.num_tokens]
            guess = self._cache.continuation(held, tail, count)
        return guess or guesser.look_up(sequence, count)

    def note(self, sequence: Sequence, num_guessed: int, num_right: int) -> None:
        """Learns from a guess."""
        guesser = self._guessers.get(sequence)
        if guesser is not None and num_guessed:
            outcome = num_right / min(num_right + 1, num_guessed)
            guesser.success += _LEARNING_RATE * (outcome - guesser.success)

    def drop(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        self._guessers.pop(sequence, None)
