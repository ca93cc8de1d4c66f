"""Speculative decoding without a draft model: draft tokens copied from earlier text.

Draft tokens go through the model together with the token before them, and a token is drawn at each
of their positions. Draws depend on nothing but seed, position and logits, so a draw that equals the
draft token is the very token that a step of its own would have drawn: the output is the same,
greedy or sampled, and only steps are saved.

A sequence's draft follows an earlier text for as long as the sequence repeats it: its own prompt
and output (prompt lookup, Saxena 2023), what the radix cache has after the same prefix, or what
other sequences of the namespace have written after the same tokens. Each drawn token is compared
with the text that is followed, whether it was drafted or not, so acceptance rates are known without
drafting.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from dataclasses import dataclass

from ramet.runtime.cache import RadixCache
from ramet.runtime.scheduler.sequence.ngram_index import (
    MATCH_LEN,
    Match,
    NgramIndex,
    SharedNgramIndex,
    match_len,
)
from ramet.runtime.scheduler.sequence.sequence import Sequence

_TREE_LEN = 64
_MAX_NAMESPACES = 16
_MIN_ACCEPTANCE = 0.1
"""Drafts end before a token whose chance of acceptance is below this."""

_STEPS = (0, 2, 3, 4, 6, 8, 12, MATCH_LEN)
_BUCKETS = [max(i for i, step in enumerate(_STEPS) if step <= n) for n in range(MATCH_LEN + 1)]


class _Source(enum.IntEnum):
    OWN = 0
    SHARED = 1
    TREE = 2


_PRIOR_RATES = (
    (0.10, 0.35, 0.55, 0.65, 0.75, 0.85, 0.93, 0.97),
    (0.05, 0.20, 0.30, 0.45, 0.60, 0.75, 0.85, 0.93),
    (0.40, 0.60, 0.70, 0.75, 0.80, 0.85, 0.90, 0.95),
)
"""Prior acceptance rates by source and match-length bucket."""


class AcceptanceRates:
    """Acceptance rates of the next draft token, by source and match length.

    Args:
        prior: the rates where few tokens have been observed.
        weight: how many observations ``prior`` counts for.
        decay: weight of an observation after the next one of its kind.
    """

    def __init__(self, prior: AcceptanceRates | None, weight: float, decay: float) -> None:
        self._prior = prior
        self._weight = weight
        self._decay = decay
        self._accepted = [0.0] * (len(_STEPS) * len(_Source))
        self._num_observed = [0.0] * (len(_STEPS) * len(_Source))

    def observe(self, kind: int, *, accepted: bool) -> None:
        self._accepted[kind] = self._accepted[kind] * self._decay + accepted
        self._num_observed[kind] = self._num_observed[kind] * self._decay + 1.0
        if self._prior is not None:
            self._prior.observe(kind, accepted=accepted)

    def rate(self, kind: int) -> float:
        """The chance that the next draft token is accepted."""
        prior = self._prior
        before = (
            prior.rate(kind) if prior else _PRIOR_RATES[kind // len(_STEPS)][kind % len(_STEPS)]
        )
        return (self._weight * before + self._accepted[kind]) / (
            self._weight + self._num_observed[kind]
        )


class _Namespace:
    """What the sequences of one namespace share: recent output and acceptance rates."""

    def __init__(self) -> None:
        self.recent = SharedNgramIndex()
        self.rates = {
            constrained: AcceptanceRates(None, 20.0, 0.99) for constrained in (False, True)
        }


@dataclass(frozen=True, slots=True)
class Draft:
    """Draft tokens, and for each the chance that all up to it are accepted."""

    token_ids: list[int]
    acceptance: list[float]


class _SequenceDrafter:
    """One sequence's tokens, and the earlier text that its draft follows."""

    def __init__(self, sequence: Sequence, namespace: _Namespace) -> None:
        self.sequence = sequence
        self.index = sequence.ngram_index or index_prompt(sequence)
        sequence.ngram_index = None
        self._num_read = sequence.num_prompt
        self._shared = namespace.recent
        self._rates = AcceptanceRates(namespace.rates[sequence.matcher is not None], 4.0, 0.95)
        self._match: Match | None = None
        self._source = _Source.OWN
        self._match_len = 0
        self.wants_tree = True
        self._find_match()

    def read(self) -> None:
        """Reads the tokens that the sequence has got since the last call."""
        sequence = self.sequence
        if self._num_read == sequence.num_tokens:
            return
        for token_id in sequence.token_ids[self._num_read : sequence.num_tokens].tolist():
            self._compare(token_id)
            self._shared.append(self.index)
            self.index.append(token_id)
        self._num_read = sequence.num_tokens
        if self._match is None or (self._match_len < 4 and self._source is not _Source.TREE):
            self._find_match()

    def follow_tree(self, token_ids: list[int]) -> None:
        """Follows what the cache has after the sequence's tokens."""
        self.wants_tree = False
        if token_ids:
            self._match, self._source, self._match_len = (token_ids, 0), _Source.TREE, 0

    def propose(self, limit: int) -> Draft:
        """A draft of up to ``limit`` tokens."""
        draft = Draft([], [])
        if self._match is None:
            return draft
        text, start = self._match
        period = len(text) - start
        chance, rate, bucket = 1.0, 0.0, -1
        for index in range(limit):
            if index < period:
                token_id = text[start + index]
            elif self._source is _Source.OWN:
                token_id = draft.token_ids[index - period]  # its own text repeats with this period
            else:
                break
            now = _BUCKETS[min(self._match_len + index, MATCH_LEN)]
            if now != bucket:
                bucket, rate = now, self._rates.rate(self._source * len(_STEPS) + now)
            chance *= rate
            if chance < _MIN_ACCEPTANCE:
                break
            draft.token_ids.append(token_id)
            draft.acceptance.append(chance)
        return draft

    def _compare(self, token_id: int) -> None:
        """Compares a drawn token with the text that is followed."""
        if self._match is None:
            return
        text, at = self._match
        if at == len(text):
            self._match = None
            self.wants_tree = self._source is _Source.TREE
            return
        accepted = text[at] == token_id
        kind = self._source * len(_STEPS) + _BUCKETS[min(self._match_len, MATCH_LEN)]
        self._rates.observe(kind, accepted=accepted)
        self._match = (text, at + 1) if accepted else None
        self._match_len += 1

    def _find_match(self) -> None:
        """Finds an earlier text to follow: the longest match; its own among equals."""
        ids = self.index.ids
        length = self._match_len if self._match is not None else 0
        for source, match in (
            (_Source.OWN, self.index.find()),
            (_Source.SHARED, self._shared.find(self.index)),
        ):
            if match is None or match[1] >= len(match[0]):
                continue
            found = match_len(ids, match)
            if found > length:
                self._match, self._source, self._match_len = match, source, found
                length = found


def index_prompt(sequence: Sequence) -> NgramIndex:
    """The n-gram index of a sequence's prompt."""
    return NgramIndex(sequence.token_ids[: sequence.num_prompt])


class Drafter:
    """Drafts for all running sequences; the longest draft has ``max_len`` tokens."""

    def __init__(self, cache: RadixCache, max_len: int) -> None:
        self._cache = cache
        self._max_len = max_len
        self._drafters: dict[Sequence, _SequenceDrafter] = {}
        self._namespaces: OrderedDict[str, _Namespace] = OrderedDict()

    def propose(self, sequence: Sequence, limit: int) -> Draft:
        """A draft of up to ``limit`` tokens."""
        drafter = self._drafters.get(sequence)
        if drafter is None:
            drafter = _SequenceDrafter(sequence, self._namespace(sequence.request.cache_salt))
            self._drafters[sequence] = drafter
        drafter.read()
        held = sequence.held
        if drafter.wants_tree and held is not None and held.matched_len == sequence.tree_len:
            tail = sequence.token_ids[sequence.tree_len : sequence.num_tokens]
            drafter.follow_tree(self._cache.continuation(held, tail, _TREE_LEN))
        return drafter.propose(min(limit, self._max_len))

    def drop(self, sequence: Sequence) -> None:
        """Forgets an ended sequence; its output stays for the others of its namespace."""
        drafter = self._drafters.pop(sequence, None)
        if drafter is not None:
            drafter.read()

    def _namespace(self, name: str) -> _Namespace:
        found = self._namespaces.pop(name, None) or _Namespace()
        self._namespaces[name] = found
        if len(self._namespaces) > _MAX_NAMESPACES:
            self._namespaces.popitem(last=False)
        return found
