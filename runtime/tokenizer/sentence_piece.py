"""Encodes text with SentencePiece (Kudo and Richardson 2018), BPE by score or Unigram."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from sentencepiece import SentencePieceProcessor

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.tokenizer.joins import JoinIndex
from ramet.runtime.tokenizer.kinds import TokenKind
from ramet.runtime.tokenizer.spelling import Speller, well_formed

BYTE_TEXT = re.compile("<0x([0-9A-Fa-f]{2})>")
"""The spelling of a byte token."""

# Field numbers of sentencepiece_model.proto, with their wire types.
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_SHORT = 0x80 - 9
_PLAIN_TEXT = b"\x18\x00\x20\x00"  # neither add_dummy_prefix nor remove_extra_whitespaces


class SentencePieceMerger:
    """Encodes text without added tokens (see ``Merger``).

    Args:
        model: a serialised ``ModelProto``. Its ids are those of ``tokens``; what it has beyond
            them stands for no token.
        tokens: every id's bytes, with spaces for marks.
        kinds: every id's kind.

    Raises ``ModelLoadError`` for a model that the library refuses.
    """

    def __init__(self, model: bytes, tokens: Sequence[bytes], kinds: Sequence[TokenKind]) -> None:
        self._num_tokens = len(tokens)
        # As the file has it, for texts; and as it continues a text. Of a field that is there
        # twice, the last counts.
        self._texts = _load(model)
        self._continued = _load(model + _field(_NORMALIZER, _PLAIN_TEXT))
        self._speller = Speller(tokens, kinds, has_space_mark=True)
        self._joins = JoinIndex(self._speller.texts)

    def encode(self, text: str, *, prefixed: bool) -> list[int]:
        return self._encode(self._texts if prefixed else self._continued, text)

    def encode_exactly(self, text: str) -> list[int] | None:
        return self._speller.encode(text, lambda part: self._encode(self._continued, part))

    def byte_id(self, byte: int) -> int | None:
        return self._speller.byte_id(byte)

    def settled_len(self, text: bytes) -> int:
        return self._joins.settled_len(text)

    def _encode(self, processor: SentencePieceProcessor, text: str) -> list[int]:
        try:
            ids = processor.encode(text)
        except UnicodeEncodeError:  # a lone surrogate
            ids = processor.encode(well_formed(text))
        return [token_id for token_id in ids if token_id < self._num_tokens]


def sentence_piece_model(
    texts: Sequence[str],
    kinds: Sequence[TokenKind],
    scores: Sequence[float],
    *,
    is_unigram: bool,
    adds_prefix: bool,
    collapses_spaces: bool,
    character_map: bytes,
) -> bytes:
    """A serialised ``ModelProto``.

    Control tokens and user-defined ones are no pieces of it: text is cut at them before.
    """
    pieces = []
    text_kinds = (TokenKind.NORMAL, TokenKind.BYTE)
    packed = np.array(scores, "<f4").tobytes()
    for token_id, (text, kind) in enumerate(zip(texts, kinds, strict=True)):
        if kind not in text_kinds or text in ("", "\0"):
            text, kind = f"\ue000{token_id}", TokenKind.UNUSED
        pieces.append(_piece(text, kind, packed[4 * token_id : 4 * token_id + 4]))
    pieces.append(_piece("\ue000unknown", TokenKind.UNKNOWN, bytes(4)))
    falls_back = sum(kind == TokenKind.BYTE for kind in kinds) == 256
    trainer = _number(3, 1 if is_unigram else 2) + _number(35, falls_back)
    normalizer = _field(1, b"identity") + _field(2, character_map)
    normalizer += _number(3, adds_prefix) + _number(4, collapses_spaces) + _number(5, 1)
    return b"".join([*pieces, _field(_TRAINER, trainer), _field(_NORMALIZER, normalizer)])


def _piece(text: str, kind: TokenKind, score: bytes) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    rest = b"\x15" + score + (b"\x18" + bytes((kind,)))
    if len(data) < _SHORT:  # most, and there are hundreds of thousands
        return bytes((0x0A, len(data) + 9, 0x0A, len(data))) + data + rest
    return _field(_PIECES, _field(1, data) + rest)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    digits: list[int] = []
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*digits, value])


def _load(model: bytes) -> SentencePieceProcessor:
    try:
        return SentencePieceProcessor(model_proto=model)
    except Exception as error:  # The library raises plain exceptions.
        raise ModelLoadError(f"not a SentencePiece model that can be used: {error}") from None


def token_bytes(texts: Iterable[str], kinds: Iterable[TokenKind], mark: str) -> list[bytes]:
    """Every token's bytes: spaces for ``mark``, and single bytes where byte tokens are written."""
    tokens: list[bytes] = []
    for text, kind in zip(texts, kinds, strict=True):
        if kind in (TokenKind.NORMAL, TokenKind.USER_DEFINED):
            text = text.replace(mark, " ")
        byte = BYTE_TEXT.fullmatch(text) if kind == TokenKind.BYTE else None
        tokens.append(bytes.fromhex(byte[1]) if byte else text.encode("utf-8", "surrogateescape"))
    return tokens
