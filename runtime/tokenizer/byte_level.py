"""Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019).

Merging is done by ``tiktoken``. Its ranks are those of the model's merges, so the ids equal those
of the model's own tokenizer.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from itertools import repeat

import tiktoken

from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind
from ramet.runtime.tokenizer.pretokenizers import PreTokenizer, bounded_chunks

_NO_TOKEN = -1


class ByteLevelMerger:
    """Merges bytes within the pieces that a pre-tokenizer cuts a text into (see ``Merger``).

    A byte's rank is its value; merged tokens follow in the order of merges. Bytes without a token
    have ranks too, for the encoder needs all 256.

    Args:
        tokens: every id's bytes.
        kinds: every id's kind.
        ranked: the bytes of merged tokens, best first (see ``ranked_tokens``).
        pre_tokenizer: the family's rule, of one covering pattern.

    Raises ``ValueError`` where a merge makes what is no token.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        kinds: Sequence[TokenKind],
        ranked: Iterable[bytes],
        pre_tokenizer: PreTokenizer,
    ) -> None:
        self._pre_tokenizer = pre_tokenizer
        by_kind = ids_by_kind(kinds)
        ids = sorted(by_kind[TokenKind.NORMAL] + by_kind[TokenKind.BYTE], reverse=True)
        id_of = dict(zip(map(tokens.__getitem__, ids), ids, strict=True))  # of equals, the first
        ordered = dict.fromkeys(bytes([byte]) for byte in range(256)) | dict.fromkeys(ranked)
        self._id_of_rank = list(map(id_of.get, ordered, repeat(_NO_TOKEN)))
        lost = self._id_of_rank[256:].count(_NO_TOKEN)
        if lost:
            raise ValueError(f"{lost} merges make tokens that the vocabulary doesn't have")
        ranks = dict(zip(ordered, range(len(ordered)), strict=True))
        (pattern,) = pre_tokenizer.patterns
        self._bpe = tiktoken.Encoding(
            "model", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )

    def encode(self, text: str, *, prefixed: bool) -> list[int]:  # noqa: ARG002
        found = self._encode(self._pre_tokenizer.normalise(text))
        return [token_id for token_id in found if token_id != _NO_TOKEN]

    def encode_exactly(self, text: str) -> list[int] | None:
        ids = self._encode(text)
        return None if _NO_TOKEN in ids else ids

    def byte_id(self, byte: int) -> int | None:
        token_id = self._id_of_rank[byte]
        return None if token_id == _NO_TOKEN else token_id

    def settled_len(self, text: bytes) -> int:
        """All but the last run of letters, digits, white space or others is settled, for most
        families cut text into such runs before they merge; 0 for the rest.

        Three things join runs: a space goes with what follows it; another single character may go
        with letters that follow it; and line ends may go with what precedes them. Marks go with
        whatever is next to them. An incomplete character at the end counts to the last run.
        """
        chars = text.decode("utf-8", "ignore")
        if not chars or not self._pre_tokenizer.cuts_at_runs:
            return 0
        start, kind = _last_run(chars, len(chars))
        if kind == "space" and start and _kind(chars[start - 1]) in ("other", "M"):
            start, kind = _last_run(chars, start)
        if start:
            before = _kind(chars[start - 1])
            start -= before == "space" or (kind in ("L", "M") and before == "other")
        return len(chars[:start].encode())

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for chunk in bounded_chunks(text):
            if chunk:
                ids += map(self._id_of_rank.__getitem__, self._bpe.encode_ordinary(chunk))
        return ids


def _last_run(chars: str, end: int) -> tuple[int, str]:
    """Where the run of like characters that ends at ``end`` begins, and their kind; with marks, a
    run goes on until two neighbours of different kinds are both none."""
    start = end - 1
    kind = first = _kind(chars[start])
    while start:
        before = _kind(chars[start - 1])
        if before != first and "M" not in (before, first):
            break
        first = before
        start -= 1
        kind = "M" if "M" in (kind, first) else kind
    return start, kind


def _kind(char: str) -> str:
    if char.isspace():
        return "space"
    category = unicodedata.category(char)[0]
    return category if category in "LNM" else "other"
