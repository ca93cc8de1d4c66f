"""Draft-free speculation: continuations guessed from text that is there already.

A guess goes through the model together with the token before it, and a token is drawn at each of
its positions. Draws depend on nothing but seed, position and logits, so a draw that equals the
guess is the very token that a step of its own would have drawn: the output is the same, greedy or
sampled, and only steps are saved.

A guesser follows an earlier text for as long as its sequence repeats that: its own prompt and
output (prompt look-up, Saxena 2023), what the radix cache has after the same prefix, or what
other sequences of the namespace have written after the same tokens. Each token that comes is held
against what was to be expected, whether it went through the model as a guess or not; so what a
guess is worth is known without trying.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass

from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.sequence.ngram_index import (
    MATCH_LEN,
    Place,
    SharedTexts,
    Text,
    match_len,
)
from ramet.runtime.scheduler.sequence.sequence import Sequence

_TREE_LEN = 64
_MAX_NAMESPACES = 16
_HOPELESS = 0.1
"""Tokens that are right less often than this are never worth guessing."""

_STEPS = (0, 2, 3, 4, 6, 8, 12, MATCH_LEN)
_BUCKETS = [max(i for i, step in enumerate(_STEPS) if step <= n) for n in range(MATCH_LEN + 1)]


class _Source(enum.IntEnum):
    OWN = 0
    SHARED = 1
    TREE = 2


_USUAL = (
    (0.10, 0.35, 0.55, 0.65, 0.75, 0.85, 0.93, 0.97),
    (0.05, 0.20, 0.30, 0.45, 0.60, 0.75, 0.85, 0.93),
    (0.40, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95),
)
"""By source, how often the token that followed before follows again after a match of so many."""


class Odds:
    """How often the next token of a text that is followed is right, by source and match.

    Args:
        prior: what is thought where little has been seen.
        weight: how many observations ``prior`` counts for.
        decay: what an observation is worth after the next one of its kind.
    """

    def __init__(self, prior: Odds | None, weight: float, decay: float) -> None:
        self._prior = prior
        self._weight = weight
        self._decay = decay
        self._right = [0.0] * (len(_STEPS) * len(_Source))
        self._tried = [0.0] * (len(_STEPS) * len(_Source))

    def note(self, kind: int, *, right: bool) -> None:
        self._right[kind] = self._right[kind] * self._decay + right
        self._tried[kind] = self._tried[kind] * self._decay + 1.0
        if self._prior is not None:
            self._prior.note(kind, right=right)

    def rate(self, kind: int) -> float:
        """The chance that the next token is right."""
        prior = self._prior
        before = prior.rate(kind) if prior else _USUAL[kind // len(_STEPS)][kind % len(_STEPS)]
        return (self._weight * before + self._right[kind]) / (self._weight + self._tried[kind])


class _Namespace:
    """What sequences of one namespace share: their texts, and what guesses are worth there."""

    def __init__(self) -> None:
        self.texts = SharedTexts()
        self.odds = {constrained: Odds(None, 20.0, 0.99) for constrained in (False, True)}


@dataclass(frozen=True, slots=True)
class Guess:
    """Tokens that may come next, and for each the chance that all up to it are right."""

    token_ids: list[int]
    odds: list[float]


class _Guesser:
    """One sequence's text, and which earlier text it follows now."""

    def __init__(self, sequence: Sequence, namespace: _Namespace) -> None:
        self.sequence = sequence
        self.text = sequence.recalled or recalled_prompt(sequence)
        sequence.recalled = None
        self._num_read = sequence.num_prompt
        self._shared = namespace.texts
        self._odds = Odds(namespace.odds[sequence.matcher is not None], 4.0, 0.95)
        self._place: Place | None = None
        self._source = _Source.OWN
        self._match_len = 0
        self.wants_tree = True
        self._look()

    def read(self) -> None:
        """Takes in the tokens that the sequence has got since the last call."""
        sequence = self.sequence
        if self._num_read == sequence.num_tokens:
            return
        for token_id in sequence.token_ids[self._num_read : sequence.num_tokens].tolist():
            self._judge(token_id)
            self._shared.append(self.text)
            self.text.append(token_id)
        self._num_read = sequence.num_tokens
        if self._place is None or (self._match_len < 4 and self._source is not _Source.TREE):
            self._look()

    def follow_tree(self, token_ids: list[int]) -> None:
        """Follows what the cache has after the sequence's tokens."""
        self.wants_tree = False
        if token_ids:
            self._place, self._source, self._match_len = (token_ids, 0), _Source.TREE, 0

    def guess(self, limit: int) -> Guess:
        """Up to ``limit`` tokens that may come next."""
        guess = Guess([], [])
        if self._place is None:
            return guess
        text, start = self._place
        period = len(text) - start
        chance, rate, bucket = 1.0, 0.0, -1
        for index in range(limit):
            if index < period:
                token_id = text[start + index]
            elif self._source is _Source.OWN:
                token_id = guess.token_ids[index - period]  # it goes round
            else:
                break
            now = _BUCKETS[min(self._match_len + index, MATCH_LEN)]
            if now != bucket:
                bucket, rate = now, self._odds.rate(self._source * len(_STEPS) + now)
            chance *= rate
            if chance < _HOPELESS:
                break
            guess.token_ids.append(token_id)
            guess.odds.append(chance)
        return guess

    def _judge(self, token_id: int) -> None:
        """Holds a token that has come against what was expected."""
        if self._place is None:
            return
        text, at = self._place
        if at == len(text):
            self._place = None
            self.wants_tree = self._source is _Source.TREE
            return
        right = text[at] == token_id
        kind = self._source * len(_STEPS) + _BUCKETS[min(self._match_len, MATCH_LEN)]
        self._odds.note(kind, right=right)
        self._place = (text, at + 1) if right else None
        self._match_len += 1

    def _look(self) -> None:
        """Finds an earlier text to follow: the longer match, or else the sequence's own."""
        ids = self.text.ids
        length = self._match_len if self._place is not None else 0
        for source, place in (
            (_Source.OWN, self.text.find()),
            (_Source.SHARED, self._shared.find(self.text)),
        ):
            if place is None or place[1] >= len(place[0]):
                continue
            found = match_len(ids, place)
            if found > length:
                self._place, self._source, self._match_len = place, source, found
                length = found


def recalled_prompt(sequence: Sequence) -> Text:
    """What a sequence's prompt can be asked for, as a guesser begins with it."""
    return Text(sequence.token_ids[: sequence.num_prompt])


class Drafter:
    """Guesses for any number of sequences; the longest has ``max_len`` tokens."""

    def __init__(self, cache: RadixCache, max_len: int) -> None:
        self._cache = cache
        self._max_len = max_len
        self._guessers: dict[Sequence, _Guesser] = {}
        self._namespaces: OrderedDict[str, _Namespace] = OrderedDict()

    def guess(self, sequence: Sequence, limit: int) -> Guess:
        """Up to ``limit`` tokens that may come next."""
        guesser = self._guessers.get(sequence)
        if guesser is None:
            guesser = _Guesser(sequence, self._namespace(sequence.request.cache_salt))
            self._guessers[sequence] = guesser
        guesser.read()
        held = sequence.held
        if guesser.wants_tree and held is not None and held.matched_len == sequence.tree_len:
            tail = sequence.token_ids[sequence.tree_len : sequence.num_tokens]
            guesser.follow_tree(self._cache.continuation(held, tail, _TREE_LEN))
        return guesser.guess(min(limit, self._max_len))

    def drop(self, sequence: Sequence) -> None:
        """The sequence has ended."""
        guesser = self._guessers.pop(sequence, None)
        if guesser is not None:
            guesser.read()

    def _namespace(self, name: str) -> _Namespace:
        found = self._namespaces.pop(name, None) or _Namespace()
        self._namespaces[name] = found
        if len(self._namespaces) > _MAX_NAMESPACES:
            self._namespaces.popitem(last=False)
        return found
