"""Reads the tokenizer of a model file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Library

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.byte_alphabet import decode_alphabet
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.tokenizer.byte_level import ByteLevelMerger
from ramet.runtime.tokenizer.encoders import SplitEncoder, TextEncoder
from ramet.runtime.tokenizer.from_json import alphabet_bytes, fillers, read_json_vocabulary
from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind
from ramet.runtime.tokenizer.library import LibraryEncoder
from ramet.runtime.tokenizer.merges import tiktoken_ranks
from ramet.runtime.tokenizer.pretokenizers import PreTokenizer, covering_pattern, pre_tokenizer
from ramet.runtime.tokenizer.sentence_piece import (
    SentencePieceMerger,
    sentence_piece_model,
    token_bytes,
)
from ramet.runtime.tokenizer.spelling import SPACE_MARK
from ramet.runtime.tokenizer.tokenizer import Tokenizer, texts_of_kind

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

JSON_KEY = "tokenizer.huggingface.json"
"""The metadata key of a whole ``tokenizer.json``."""


def read_tokenizer(file: ModelFile) -> Tokenizer:
    """The tokenizer in a model file.

    Raises ``UnsupportedModelError`` for a kind of tokenizer that Ramet doesn't have,
    ``ModelLoadError`` for a file that contradicts itself.
    """
    vocabulary = _vocabulary(file)
    texts, kinds = vocabulary.texts, vocabulary.kinds
    return Tokenizer(
        tokens=vocabulary.tokens,
        kinds=kinds,
        encoder=vocabulary.encoder,
        bos_id=_token_id(file, "bos", len(texts)),
        eos_id=_token_id(file, "eos", len(texts)),
        eos_ids=_end_ids(file, texts, kinds),
        adds_bos=file.flag("tokenizer.ggml.add_bos_token", vocabulary.adds_bos),
        chat_template=file.text("tokenizer.chat_template", "") or None,
        strips_prefix=vocabulary.strips_prefix,
    )


class _Vocabulary(NamedTuple):
    """A file's tokens, what encodes with them, and whether prompts begin with the
    beginning-of-text token where the file doesn't say."""

    texts: Sequence[str]
    kinds: Sequence[TokenKind]
    tokens: Sequence[bytes]
    encoder: TextEncoder
    adds_bos: bool
    strips_prefix: bool = False


def _vocabulary(file: ModelFile) -> _Vocabulary:
    if "tokenizer.ggml.model" not in file.metadata and JSON_KEY in file.metadata:
        return _json_vocabulary(file)
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
    return _READERS[model][1](file, texts, kinds)


def _json_vocabulary(file: ModelFile) -> _Vocabulary:
    size = file.tensor("token_embd.weight").shape[0]
    source = file.text(JSON_KEY)
    vocabulary = read_json_vocabulary(source, size, where=file.path / "tokenizer.json")
    bos_id = file.metadata.get("tokenizer.ggml.bos_token_id")
    return _Vocabulary(
        vocabulary.texts,
        vocabulary.kinds,
        vocabulary.tokens,
        vocabulary.encoder,
        bos_id is not None and vocabulary.bos_id == bos_id,
        vocabulary.strips_prefix,
    )


def _byte_level(file: ModelFile, texts: Sequence[str], kinds: Sequence[TokenKind]) -> _Vocabulary:
    tokens = alphabet_bytes(texts, kinds, file.path)
    by_kind = ids_by_kind(kinds)
    control = texts_of_kind(tokens, by_kind[TokenKind.CONTROL])
    user_defined = texts_of_kind(tokens, by_kind[TokenKind.USER_DEFINED])
    if RANKED_KEY in file.metadata:
        rule = _rule_of_pattern(file)
        ranked = _decoded(file, file.texts(RANKED_KEY))
    else:
        rule = pre_tokenizer(file.text("tokenizer.ggml.pre", "gpt-2"))
        pairs = [merge.partition(" ") for merge in file.texts("tokenizer.ggml.merges")]
        left = _decoded(file, [pair[0] for pair in pairs])
        right = _decoded(file, [pair[2] for pair in pairs])
        ordinary = [tokens[i] for i in by_kind[TokenKind.NORMAL]]
        found = tiktoken_ranks(ordinary, left, right, ignores_merges=rule.ignores_merges)
        if found is None or not rule.is_covering:
            library = _byte_level_library(file, texts, by_kind, rule, pairs)
            encoder: TextEncoder = LibraryEncoder(
                library,
                tokens,
                kinds,
                control,
                user_defined,
                has_space_mark=False,
                merges_whole_texts=False,
            )
            return _Vocabulary(texts, kinds, tokens, encoder, rule.adds_bos)
        ranked = found
    try:
        merger = ByteLevelMerger(tokens, kinds, ranked, rule)
    except ValueError as error:
        raise ModelLoadError(f"{file.path}: {error}") from None
    encoder = SplitEncoder(merger, control, user_defined)
    return _Vocabulary(texts, kinds, tokens, encoder, rule.adds_bos)


RANKED_KEY = "ramet.tokenizer.ranked_tokens"
"""The metadata key of a ``tiktoken`` vocabulary: merged tokens, best first."""

PATTERN_KEY = "ramet.tokenizer.pattern"
"""The metadata key of its pattern."""


def _rule_of_pattern(file: ModelFile) -> PreTokenizer:
    pattern = file.text(PATTERN_KEY)
    rule = covering_pattern(pattern)
    if rule is None:
        raise UnsupportedModelError(f"{file.path}: the pre-tokenizer {pattern!r} is not supported")
    return rule.in_form(None)


def _decoded(file: ModelFile, texts: Sequence[str]) -> list[bytes]:
    try:
        return decode_alphabet(texts)
    except KeyError as error:
        raise ModelLoadError(
            f"{file.path}: a merge has {error.args[0]!r}, which is not in the byte alphabet"
        ) from None


def _byte_level_library(
    file: ModelFile,
    texts: Sequence[str],
    by_kind: Mapping[TokenKind, Sequence[int]],
    rule: PreTokenizer,
    pairs: Sequence[tuple[str, str, str]],
) -> Library:
    whole = (TokenKind.NORMAL, TokenKind.BYTE, TokenKind.USER_DEFINED)
    vocab = {texts[i]: i for kind in whole for i in by_kind[kind]}
    vocab |= fillers(vocab.values(), len(texts))
    merges = [(left, right) for left, _, right in pairs]
    try:
        model = models.BPE(vocab, merges, ignore_merges=rule.ignores_merges)
    except Exception as error:  # The library raises plain exceptions.
        raise ModelLoadError(f"{file.path}: {error}") from None
    library = Library(model)
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in rule.patterns),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    if rule.normal_form:
        library.normalizer = normalizers.NFC()
    for token_id in by_kind[TokenKind.USER_DEFINED]:
        library.add_tokens([AddedToken(texts[token_id], normalized=False)])
    return library


def _sentence_piece(
    file: ModelFile, texts: Sequence[str], kinds: Sequence[TokenKind]
) -> _Vocabulary:
    tokens = token_bytes(texts, kinds, SPACE_MARK)
    adds_prefix = file.flag("tokenizer.ggml.add_space_prefix", True)
    is_model = MODEL_KEY in file.metadata
    if is_model:
        model = file.numbers(MODEL_KEY).astype("u1").tobytes()
        num_pieces = file.integer("ramet.tokenizer.num_pieces")
    else:
        scores = file.numbers("tokenizer.ggml.scores").tolist()
        if len(scores) != len(texts):
            raise ModelLoadError(f"{file.path}: {len(texts)} tokens, and {len(scores)} scores")
        charsmap = "tokenizer.ggml.precompiled_charsmap"
        has_map = charsmap in file.metadata
        num_pieces = 0
        model = sentence_piece_model(
            texts,
            kinds,
            scores,
            is_unigram=file.text("tokenizer.ggml.model") == "t5",
            adds_prefix=adds_prefix,
            collapses_spaces=file.flag("tokenizer.ggml.remove_extra_whitespaces", False),
            character_map=file.numbers(charsmap).astype("u1").tobytes() if has_map else b"",
        )
    try:
        merger = SentencePieceMerger(model, tokens, kinds)
    except ModelLoadError as error:
        raise ModelLoadError(f"{file.path}: {error}") from None
    by_kind = ids_by_kind(kinds)
    user_defined = [i for i in by_kind[TokenKind.USER_DEFINED] if i >= num_pieces]
    encoder = SplitEncoder(
        merger,
        texts_of_kind(tokens, by_kind[TokenKind.CONTROL]),
        texts_of_kind(tokens, user_defined),
    )
    return _Vocabulary(texts, kinds, tokens, encoder, True, adds_prefix)


MODEL_KEY = "ramet.tokenizer.sentencepiece_model"
"""The metadata key of a whole ``tokenizer.model``: it finds its user-defined tokens itself."""

_READERS = {
    "gpt2": ("byte-level BPE", _byte_level),
    "llama": ("SentencePiece's BPE", _sentence_piece),
    "t5": ("SentencePiece's Unigram", _sentence_piece),
}
"""By ``tokenizer.ggml.model``."""


def _kinds(file: ModelFile) -> list[TokenKind]:
    by_number = {int(kind): kind for kind in TokenKind}
    try:
        return [by_number[each] for each in file.numbers("tokenizer.ggml.token_type").tolist()]
    except KeyError as error:
        raise ModelLoadError(f"{file.path}: unknown token type {error.args[0]}") from None


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
