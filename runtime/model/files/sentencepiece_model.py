"""Reads ``tokenizer.model``, SentencePiece's file: a protocol-buffers message.

Only the fields that encoding depends on are read; their numbers are those of
``sentencepiece_model.proto``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import MetadataValue

_UNIGRAM = 1
_KINDS_OF_MODEL = {_UNIGRAM: "t5", 2: "llama"}
_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

AddedTokens = dict[int, tuple[str, bool]]
"""Tokens that other files add to a vocabulary: by id, their text and whether they are control
tokens."""


def sentencepiece_metadata(
    path: Path, added: AddedTokens, vocab_size: int
) -> dict[str, MetadataValue]:
    """The ``tokenizer.*`` metadata of a SentencePiece model.

    Args:
        path: the file.
        added: tokens that aren't in it.
        vocab_size: embedding rows.

    Raises ``ModelLoadError`` for a damaged file, ``UnsupportedModelError`` for a kind of model
    that is neither BPE nor Unigram.
    """
    try:
        data = path.read_bytes()
        model = _read(data)
    except OSError as error:
        raise ModelLoadError(f"{path}: can't be read: {error.strerror or error}") from None
    except (ValueError, struct.error, IndexError) as error:
        raise ModelLoadError(f"{path}: not a SentencePiece model ({error})") from None
    size = max([len(model.texts), *(token_id + 1 for token_id in added)])
    if not model.texts or size > vocab_size:
        raise ModelLoadError(f"{path}: {size} tokens, and {vocab_size} rows in the embedding")
    padding = vocab_size - len(model.texts)
    texts = [*model.texts, *(f"<unused {len(model.texts) + i}>" for i in range(padding))]
    kinds = [*model.kinds, *([_UNUSED] * padding)]
    scores = [*model.scores, *([0.0] * padding)]
    for token_id, (text, is_control) in added.items():
        texts[token_id] = text
        kinds[token_id] = _CONTROL if is_control else _USER_DEFINED
    if model.type not in _KINDS_OF_MODEL:
        raise UnsupportedModelError(
            f"{path}: a SentencePiece model of type {model.type} is not supported; "
            "Ramet has BPE and Unigram"
        )
    return {
        "tokenizer.ggml.model": _KINDS_OF_MODEL[model.type],
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.add_space_prefix": model.adds_prefix,
        "ramet.tokenizer.sentencepiece_model": np.frombuffer(data, np.uint8),
        "ramet.tokenizer.num_pieces": len(model.texts),
    }


class _Model:
    """The fields of a ``ModelProto``, with their defaults."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.scores: list[float] = []
        self.kinds: list[int] = []
        self.type = _UNIGRAM
        self.adds_prefix = True


def _read(data: bytes) -> _Model:
    model = _Model()
    for number, value in _fields(data):
        if number == 1 and isinstance(value, bytes):
            piece = dict(_fields(value))
            model.texts.append(piece[1].decode("utf-8") if 1 in piece else "")
            model.scores.append(float(piece.get(2, 0.0)))
            model.kinds.append(int(piece.get(3, _NORMAL)))
        elif number == 2 and isinstance(value, bytes):
            model.type = int(dict(_fields(value)).get(3, _UNIGRAM))
        elif number == 3 and isinstance(value, bytes):
            model.adds_prefix = bool(dict(_fields(value)).get(3, True))
    if any(not _NORMAL <= kind <= 6 for kind in model.kinds):
        raise ValueError("an unknown kind of token")
    return model


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: (number, an int, a float or bytes)."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif kind == _BYTES:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("cut short")
            yield number, data[position : position + length]
            position += length
        elif kind == _FIXED32:
            yield number, struct.unpack_from("<f", data, position)[0]
            position += 4
        elif kind == _FIXED64:
            position += 8
        else:
            raise ValueError(f"a field of type {kind}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number without end")
