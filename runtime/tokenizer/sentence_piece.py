"""SentencePiece's byte-pair encoding (Kudo and Richardson 2018): merges by score over a whole text.

A text's characters are joined, two neighbours at a time, the pair first whose token has the best
score, the leftmost of equals; characters without a token become tokens of their bytes. Nothing cuts
a text before. ``tiktoken`` does the merging, on bytes: its best ranks join the bytes of one
character, the next are those of the scores.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import islice

import tiktoken

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.tokenizer.kinds import TokenKind

SPACE_MARK = "\u2581"
"""How a vocabulary of this kind writes a space."""

_ANYTHING = r"[\s\S]+"
_NO_TOKEN = -1


class ScoreMerger:
    """Merges characters by their tokens' scores (see ``Merger``).

    Args:
        tokens: every id's bytes, with spaces for marks.
        kinds: every id's kind; each of the 256 bytes needs a ``BYTE`` token.
        scores: every id's score, the higher the sooner merged.

    Raises ``ModelLoadError`` where a byte has no token or a text has two,
    ``UnsupportedModelError`` where two tokens to merge have the same score.
    """

    def __init__(
        self, tokens: Sequence[bytes], kinds: Sequence[TokenKind], scores: Sequence[float]
    ) -> None:
        byte_ids = {
            tokens[i]: i
            for i, kind in enumerate(kinds)
            if kind == TokenKind.BYTE and len(tokens[i]) == 1
        }
        if len(byte_ids) != 256:
            raise ModelLoadError(f"only {len(byte_ids)} of 256 bytes have a token of their own")
        self._byte_ids = [byte_ids[bytes([byte])] for byte in range(256)]
        id_of: dict[bytes, int] = {}
        characters: list[bytes] = []
        merged: list[int] = []
        for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
            if kind == TokenKind.NORMAL and token:
                if id_of.setdefault(token, token_id) != token_id:
                    raise ModelLoadError(f"{token!r} is a token twice")
                # The first byte says how long a character is.
                if len(token) == _character_len(token[0]):
                    characters.append(token)
                else:
                    merged.append(token_id)
        if len({scores[token_id] for token_id in merged}) != len(merged):
            raise UnsupportedModelError("a vocabulary in which scores repeat is not supported")
        merged.sort(key=lambda token_id: -scores[token_id])
        texts = [tokens[token_id] for token_id in merged]
        ordered = dict.fromkeys(bytes([byte]) for byte in range(256))
        for length in (2, 3):
            ordered |= dict.fromkeys(c[:length] for c in characters if len(c) > length)
        num_parts = len(ordered)
        ordered |= dict.fromkeys(characters)
        ordered |= dict.fromkeys(texts)
        self._id_of_rank = [id_of.get(text, _NO_TOKEN) for text in ordered]
        # What is no token, a byte or a character's beginning, is the tokens of its bytes.
        self._ids_of_part = [
            [self._byte_ids[byte] for byte in text] for text in islice(ordered, num_parts)
        ]
        self._sorted = sorted(texts)
        self._longest = max(map(len, texts), default=0)
        self._bpe = tiktoken.Encoding(
            "model",
            pat_str=_ANYTHING,
            mergeable_ranks={text: rank for rank, text in enumerate(ordered)},
            special_tokens={},
        )
        # The encoder takes what is a token as a whole for that token, though merging may not lead
        # there: behind a character that no token has, nothing is.
        used = set(b"".join(ordered).decode("utf-8", "ignore"))
        self._end = next(char for char in map(chr, range(0x110000)) if char not in used)
        self._end_len = len(self._bpe.encode_ordinary(self._end))

    def encode(self, text: str) -> list[int]:
        # The mark is a space to such a model, whatever it is to the writer.
        return self._encode(text.replace(SPACE_MARK, " "))

    def encode_exactly(self, text: str) -> list[int] | None:
        return self._encode(text)

    def byte_id(self, byte: int) -> int | None:
        return self._byte_ids[byte]

    def settled_len(self, text: bytes) -> int:
        """Up to the last place that no token spans which begins like the text before it and has
        the byte behind it."""
        for cut in range(len(text) - 1, 0, -1):
            if text[cut] & 0xC0 != 0x80 and not self._may_be_joined(text, cut):
                return cut
        return 0

    def _may_be_joined(self, text: bytes, cut: int) -> bool:
        for start in range(max(0, cut - self._longest + 1), cut):
            head = text[start : cut + 1]
            at = bisect_left(self._sorted, head)
            if at < len(self._sorted) and self._sorted[at].startswith(head):
                return True
        return False

    def _encode(self, text: str) -> list[int]:
        if not text:
            return []
        ids: list[int] = []
        for rank in self._bpe.encode_ordinary(text + self._end)[: -self._end_len]:
            token_id = self._id_of_rank[rank]
            if token_id == _NO_TOKEN:
                ids += self._ids_of_part[rank]
            else:
                ids.append(token_id)
        return ids


def _character_len(first: int) -> int:
    """Bytes of the UTF-8 character that begins with ``first``."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
