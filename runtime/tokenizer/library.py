"""Encodes text with Hugging Face's ``tokenizers``: all its normalisers, pre-tokenizers and models.

Slower than ``tiktoken``, which encodes what it can encode equally (see ``byte_level``)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library

from ramet.runtime.tokenizer.encoders import PromptPiece
from ramet.runtime.tokenizer.joins import JoinIndex
from ramet.runtime.tokenizer.kinds import TokenKind
from ramet.runtime.tokenizer.spelling import Speller, well_formed

_PRIVATE_USE = range(0xE000, 0xF8FF)


class LibraryEncoder:
    """A ``TextEncoder`` around a tokenizer of the library.

    Control tokens are never found in a text. Where a prompt has one, a mark takes its place while
    the library encodes the prompt as a whole: text of random private characters that is an added
    token with the same treatment of white space.

    Args:
        library: the tokenizer; it is changed, and belongs to this object from then on.
        tokens: every id's bytes.
        kinds: every id's kind.
        control: ids of control tokens, by text.
        user_defined: ids of tokens that are always whole, by text.
        has_space_mark: spaces are written as U+2581, so the two decode to the same text.
        merges_whole_texts: no pre-tokenizer looks ahead, so what no token spans can't be joined.
    """

    def __init__(
        self,
        library: Library,
        tokens: Sequence[bytes],
        kinds: Sequence[TokenKind],
        control: Mapping[str, int],
        user_defined: Mapping[str, int],
        *,
        has_space_mark: bool,
        merges_whole_texts: bool,
    ) -> None:
        self._library = library
        self._ids = dict(user_defined) | dict(control)
        library.no_truncation()
        library.no_padding()
        library.encode_special_tokens = True
        added = library.get_added_tokens_decoder()
        sides = {False: (False, False)} | {
            token_id: (added[token_id].lstrip, added[token_id].rstrip)
            for token_id in self._ids.values()
            if token_id in added
        }
        self._sides = sides
        self._marks = {side: _random_text() for side in sorted({*sides.values()})}
        library.add_tokens(
            [
                AddedToken(mark, lstrip=left, rstrip=right, normalized=False)
                for (left, right), mark in self._marks.items()
            ]
        )
        self._mark_ids = {library.token_to_id(mark) for mark in self._marks.values()}
        self._speller = Speller(tokens, kinds, has_space_mark=has_space_mark)
        self._joins = JoinIndex(self._speller.texts) if merges_whole_texts else None
        self._guard = self._speller.unused_character()
        self._guard_ids = self._encode(self._guard)

    def encode_pieces(self, pieces: Sequence[PromptPiece], *, continues: bool) -> list[int]:
        control_ids = [self._ids[text] for text, is_control in pieces if is_control]
        parts = [
            self._mark_of(self._ids[text]) if is_control else text for text, is_control in pieces
        ]
        if continues:
            parts.insert(0, self._marks[False, False])
        found = self._encode("".join(parts))
        if continues:
            found = found[1:]
        controls = iter(control_ids)
        return [next(controls) if each in self._mark_ids else each for each in found]

    def encode_exactly(self, text: str) -> list[int] | None:
        # Some vocabularies put a space before every part of a text.
        return self._speller.encode(text, self._continued, self._without_space, self._guarded)

    def byte_id(self, byte: int) -> int | None:
        return self._speller.byte_id(byte)

    def settled_len(self, text: bytes) -> int:
        if self._joins is None:
            return 0
        return self._joins.settled_len(text)

    def _encode(self, text: str) -> list[int]:
        try:
            return list(self._library.encode(text, add_special_tokens=False).ids)
        except UnicodeEncodeError:  # a lone surrogate
            return list(self._library.encode(well_formed(text), add_special_tokens=False).ids)

    def _continued(self, text: str) -> list[int]:
        return self.encode_pieces([(text, False)], continues=True)

    def _without_space(self, text: str) -> list[int] | None:
        return self._encode(text[1:]) if text[0] == " " else None

    def _guarded(self, text: str) -> list[int] | None:
        """The ids of the text behind a character that nothing is merged with."""
        ids, num_guards = self._encode(self._guard + text), len(self._guard_ids)
        return ids[num_guards:] if ids[:num_guards] == self._guard_ids else None

    def _mark_of(self, token_id: int) -> str:
        return self._marks[self._sides.get(token_id, (False, False))]


def _random_text() -> str:
    return "".join(chr(secrets.choice(_PRIVATE_USE)) for _ in range(24))
