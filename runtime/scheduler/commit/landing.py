"""Soft landing: a growing bias towards tokens that close an output, ahead of its forced end.

A complete output that has used up its budget ends wherever it is, often inside a word. With
``Request.landing`` the tokens that begin its shortest completion (a quote, a bracket, an end tag)
gain likelihood from that share of the budget on, linearly. A model puts far less likelihood on them
inside a word than at a word's or sentence's end, so the output mostly ends at one of these.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

from ramet.runtime.scheduler.commit.completion import Pieces
from ramet.runtime.scheduler.sequence.sequence import Sequence as Sequence_

STRENGTH = 16.0
"""What is added to logits when the budget is used up: a factor of e^16 in likelihood."""


class Landing:
    """Finds the tokens that close an output.

    Args:
        texts: every token's bytes; special tokens have none that matter here.
        special_ids: those tokens.
        eos_ids: tokens that end an output.
    """

    def __init__(
        self, texts: Sequence[bytes], special_ids: Collection[int], eos_ids: Collection[int]
    ) -> None:
        self._texts = texts
        self._special_ids = special_ids
        self._eos_ids = tuple(sorted(eos_ids))

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        """The first token of each text that has no letters or digits."""
        found: dict[bytes, int] = {}
        for token_id, text in enumerate(self._texts):
            if text and token_id not in self._special_ids and _closing_len(text) == len(text):
                found.setdefault(text, token_id)
        return found

    def biases(self, sequence: Sequence_) -> dict[int, float]:
        """What to add to the logits of a sequence's next token."""
        start, pieces = sequence.request.landing, sequence.completion
        if start is None or pieces is None or not sequence.completion_is_current:
            return {}
        used = sequence.num_output / (sequence.max_len - sequence.num_prompt)
        if used <= start:
            return {}
        value = STRENGTH * (used - start) / (1 - start)
        return dict.fromkeys(self._closing_tokens(pieces), value)

    def _closing_tokens(self, pieces: Pieces) -> Sequence[int]:
        if not pieces:
            return self._eos_ids
        first = pieces[0]
        if isinstance(first, int):
            return (first,)
        length = _closing_len(first)
        if first[:2] == b'""':
            length = 1  # an empty string is no way to close one
        heads = (first[:end] for end in range(1, length + 1))
        return [token_id for head in heads if (token_id := self._ids.get(head)) is not None]


def _closing_len(text: bytes) -> int:
    """The length of the punctuation that a text begins with; a completion that begins with a
    letter or digit goes on with a value and closes none."""
    length = 0
    while length < len(text) and text[length] < 128 and not chr(text[length]).isalnum():
        length += 1
    return length
