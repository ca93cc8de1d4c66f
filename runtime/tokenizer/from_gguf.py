"""Reads the tokenizer of a model file."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.tokenizer.byte_alphabet import decode_alphabet
from ramet.runtime.tokenizer.byte_level import ByteLevelMerger
from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind
from ramet.runtime.tokenizer.pretokenizers import pre_tokenizer
from ramet.runtime.tokenizer.sentence_piece import SPACE_MARK, ScoreMerger
from ramet.runtime.tokenizer.tokenizer import Merger, Tokenizer

_END_OF_TURN_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endofturn|>",
        "<end_of_turn>",
        "<|return|>",
        "<|call|>",
    }
)
_END_OF_MESSAGE = "<|end|>"
"""Ends an output, too, unless the vocabulary has a token of its own for that (``<|return|>``):
then it ends one message of several."""

_BYTE_TEXT = re.compile("<0x([0-9A-F]{2})>")


def read_tokenizer(file: ModelFile) -> Tokenizer:
    """The tokenizer in a model file.

    Raises ``UnsupportedModelError`` for a kind of tokenizer that Ramet doesn't have,
    ``ModelLoadError`` for a file that contradicts itself.
    """
    model = file.text("tokenizer.ggml.model")
    if model not in _READERS:
        known = ", ".join(f"{what} ({name!r})" for name, (what, _) in _READERS.items())
        raise UnsupportedModelError(
            f"{file.path}: the tokenizer {model!r} is not supported; Ramet has {known}"
        )
    texts = file.texts("tokenizer.ggml.tokens")
    has_kinds = "tokenizer.ggml.token_type" in file.metadata
    kinds = _kinds(file) if has_kinds else [TokenKind.NORMAL] * len(texts)
    if len(kinds) != len(texts):
        raise ModelLoadError(f"{file.path}: {len(texts)} tokens, and {len(kinds)} token types")
    tokens, merger, adds_bos = _READERS[model][1](file, texts, kinds)
    return Tokenizer(
        tokens=tokens,
        kinds=kinds,
        merger=merger,
        bos_id=_token_id(file, "bos", len(texts)),
        eos_id=_token_id(file, "eos", len(texts)),
        eos_ids=_end_ids(file, texts, kinds),
        adds_bos=file.flag("tokenizer.ggml.add_bos_token", adds_bos),
        chat_template=file.text("tokenizer.chat_template", "") or None,
    )


_Read = tuple[list[bytes], Merger, bool]
"""Every token's bytes, what merges them, and whether prompts begin with the beginning-of-text token
where the file doesn't say."""


def _byte_level(file: ModelFile, texts: Sequence[str], kinds: Sequence[TokenKind]) -> _Read:
    merges = file.texts("tokenizer.ggml.merges")
    rule = pre_tokenizer(file.text("tokenizer.ggml.pre", "gpt-2"))
    try:
        tokens = _alphabet_bytes(texts, kinds)
        merged = decode_alphabet([merge.replace(" ", "", 1) for merge in merges])
    except KeyError as error:
        raise ModelLoadError(
            f"{file.path}: a token has {error.args[0]!r}, which is not in the byte alphabet"
        ) from None
    return tokens, ByteLevelMerger(tokens, kinds, merged, rule), rule.adds_bos


def _sentence_piece(file: ModelFile, texts: Sequence[str], kinds: Sequence[TokenKind]) -> _Read:
    for option, default in (("add_space_prefix", True), ("remove_extra_whitespaces", False)):
        if file.flag(f"tokenizer.ggml.{option}", default):
            raise UnsupportedModelError(
                f"{file.path}: a SentencePiece tokenizer with {option} is not supported"
            )
    scores = file.numbers("tokenizer.ggml.scores").tolist()
    if len(scores) != len(texts):
        raise ModelLoadError(f"{file.path}: {len(texts)} tokens, and {len(scores)} scores")
    tokens: list[bytes] = []
    for text, kind in zip(texts, kinds, strict=True):
        if kind == TokenKind.NORMAL:
            text = text.replace(SPACE_MARK, " ")
        byte = _BYTE_TEXT.fullmatch(text) if kind == TokenKind.BYTE else None
        tokens.append(bytes.fromhex(byte[1]) if byte else text.encode("utf-8", "surrogateescape"))
    return tokens, ScoreMerger(tokens, kinds, scores), True


_READERS = {
    "gpt2": ("byte-level BPE", _byte_level),
    "llama": ("SentencePiece's BPE", _sentence_piece),
}
"""By ``tokenizer.ggml.model``."""


def _kinds(file: ModelFile) -> list[TokenKind]:
    by_number = {int(kind): kind for kind in TokenKind}
    try:
        return [by_number[each] for each in file.numbers("tokenizer.ggml.token_type").tolist()]
    except KeyError as error:
        raise ModelLoadError(f"{file.path}: unknown token type {error.args[0]}") from None


def _alphabet_bytes(texts: Sequence[str], kinds: Sequence[TokenKind]) -> list[bytes]:
    """Normal tokens are written in the byte alphabet, all others as plain text."""
    by_kind = ids_by_kind(kinds)
    plain = [i for kind, ids in by_kind.items() if kind != TokenKind.NORMAL for i in ids]
    normal = list(texts)
    for token_id in plain:
        normal[token_id] = ""
    tokens = decode_alphabet(normal)
    for token_id in plain:
        tokens[token_id] = texts[token_id].encode("utf-8", "surrogateescape")
    return tokens


def _token_id(file: ModelFile, name: str, num_tokens: int) -> int | None:
    """A token that the file names, such as ``bos``; None if it doesn't."""
    key = f"tokenizer.ggml.{name}_token_id"
    if key not in file.metadata:
        return None
    token_id = file.integer(key)
    if token_id >= num_tokens:
        raise ModelLoadError(f"{file.path}: {key} is {token_id}, of {num_tokens} tokens")
    return token_id


def _end_ids(file: ModelFile, texts: Sequence[str], kinds: Sequence[TokenKind]) -> set[int]:
    """The file's end tokens, and the control tokens that are well known as such."""
    named = {_token_id(file, name, len(texts)) for name in ("eos", "eot", "eom")}
    ids = {token_id for token_id in named if token_id is not None}
    if "ramet.end_token_ids" in file.metadata:
        ids |= set(file.numbers("ramet.end_token_ids").tolist())
    if any(not 0 <= i < len(texts) for i in ids):
        raise ModelLoadError(f"{file.path}: an end token is not in the vocabulary")
    control = {texts[i]: i for i in ids_by_kind(kinds)[TokenKind.CONTROL]}
    ends = ids | {i for text, i in control.items() if text in _END_OF_TURN_TEXTS}
    return ends - {control.get(_END_OF_MESSAGE, -1)} if "<|return|>" in control else ends
