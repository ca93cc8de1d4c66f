"""Spells bytes exactly: what a vocabulary's own encoder gives where its bytes are the text's, and
the longest tokens where they aren't."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ramet.runtime.tokenizer.kinds import TokenKind

SPACE_MARK = "\u2581"
"""The mark for a space in some vocabularies."""

_TEXT_KINDS = (TokenKind.NORMAL, TokenKind.BYTE, TokenKind.USER_DEFINED)


class Speller:
    """Finds tokens for bytes.

    Args:
        tokens: every id's bytes.
        kinds: every id's kind.
        has_space_mark: the vocabulary's own encoder writes spaces as ``SPACE_MARK``.

    Attributes:
        texts: the bytes of all tokens that a text can have.
    """

    def __init__(
        self, tokens: Sequence[bytes], kinds: Sequence[TokenKind], *, has_space_mark: bool
    ) -> None:
        self._tokens = tokens
        self._has_space_mark = has_space_mark
        ordinary = [i for i, kind in enumerate(kinds) if kind in _TEXT_KINDS and tokens[i]]
        self._id_of = {tokens[i]: i for i in reversed(ordinary)}
        # Byte tokens spell single bytes where there are others of the same byte.
        self._id_of |= {tokens[i]: i for i in ordinary if kinds[i] == TokenKind.BYTE}
        self._longest = max(map(len, self._id_of), default=0)

    @property
    def texts(self) -> Iterable[bytes]:
        return self._id_of.keys()

    def byte_id(self, byte: int) -> int | None:
        """The token of one byte, or None."""
        return self._id_of.get(bytes([byte]))

    def unused_character(self) -> str:
        """A private-use character that is in no token."""
        used = {char for token in self._id_of for char in token.decode("utf-8", "ignore")}
        return next(char for char in map(chr, range(0xE000, 0xF8FF)) if char not in used)

    def encode(
        self, text: str, *encoders: Callable[[str], Sequence[int] | None]
    ) -> list[int] | None:
        """Ids whose bytes are those of ``text``: of the first encoder that gives such, or the
        longest tokens; None where a byte has no token."""
        parts = text.split(SPACE_MARK) if self._has_space_mark else [text]
        ids: list[int] = []
        for index, part in enumerate(parts):
            mark = self._longest_tokens(SPACE_MARK.encode(), 1) if index else []
            found = self._encode(part, encoders) if part else []
            if mark is None or found is None:
                return None
            ids += mark
            ids += found
        return ids

    def _encode(
        self, text: str, encoders: Iterable[Callable[[str], Sequence[int] | None]]
    ) -> list[int] | None:
        data = text.encode("utf-8", "surrogateescape")
        for encode in encoders:
            ids = encode(text)
            if ids is not None and self._spell(ids) == data:
                return list(ids)
        return self._longest_tokens(data, self._longest)

    def _spell(self, ids: Iterable[int]) -> bytes:
        return b"".join(self._tokens[i] for i in ids if i < len(self._tokens))

    def _longest_tokens(self, data: bytes, max_len: int) -> list[int] | None:
        ids, start = [], 0
        while start < len(data):
            for end in range(min(len(data), start + max_len), start, -1):
                token_id = self._id_of.get(data[start:end])
                if token_id is not None:
                    break
            else:
                return None
            ids.append(token_id)
            start = end
        return ids


def well_formed(text: str) -> str:
    """The text with U+FFFD for lone surrogates."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
