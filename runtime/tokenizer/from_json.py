"""Reads ``tokenizer.json``, the format of Hugging Face's ``tokenizers``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokenizers import Tokenizer as Library

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.byte_alphabet import decode_alphabet
from ramet.runtime.tokenizer.byte_level import ByteLevelMerger
from ramet.runtime.tokenizer.encoders import SplitEncoder, TextEncoder
from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind
from ramet.runtime.tokenizer.library import LibraryEncoder
from ramet.runtime.tokenizer.merges import tiktoken_ranks
from ramet.runtime.tokenizer.pretokenizers import PreTokenizer, covering_pattern, pre_tokenizer
from ramet.runtime.tokenizer.sentence_piece import BYTE_TEXT
from ramet.runtime.tokenizer.spelling import SPACE_MARK
from ramet.runtime.tokenizer.tokenizer import texts_of_kind

_Json = Mapping[str, Any]


class JsonVocabulary(NamedTuple):
    """The parsed content of a ``tokenizer.json``.

    Attributes:
        texts, tokens, kinds: of every id; ids without a token are unused.
        encoder: turns text into ids.
        bos_id: the token that the post-processor puts before a text, or None.
        strips_prefix: see ``Tokenizer``.
    """

    texts: list[str]
    tokens: list[bytes]
    kinds: list[TokenKind]
    encoder: TextEncoder
    bos_id: int | None
    strips_prefix: bool


def read_json_vocabulary(source: str, vocab_size: int, *, where: object) -> JsonVocabulary:
    """The vocabulary and its encoder.

    Args:
        source: the file's text.
        vocab_size: ids that the model's embedding has; the vocabulary may have fewer.
        where: the file, for error messages.

    Raises ``UnsupportedModelError`` for a model or decoder that Ramet has no bytes of tokens for,
    ``ModelLoadError`` for a damaged file.
    """
    try:
        return _read(json.loads(source), source, vocab_size, where)
    except ModelLoadError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # JSON values are read as what they should be.
        raise ModelLoadError(f"{where}: damaged: {error!r}") from error
    except RecursionError:
        raise ModelLoadError(f"{where}: damaged: nested too deep") from None


def _read(document: Any, source: str, vocab_size: int, where: object) -> JsonVocabulary:
    if not isinstance(document, dict):
        raise ModelLoadError(f"{where}: not a JSON object")
    model = document.get("model") or {}
    spelling = _spelling(document, where)
    texts, kinds = _texts(document, model, vocab_size, where)
    tokens = _token_bytes(texts, kinds, spelling, where)
    by_kind = ids_by_kind(kinds)
    control = texts_of_kind(tokens, by_kind[TokenKind.CONTROL])
    user_defined = {texts[i]: i for i in by_kind[TokenKind.USER_DEFINED]}
    encoder = _tiktoken(document, model, tokens, kinds, control, user_defined)
    if encoder is None:
        encoder = LibraryEncoder(
            _library(document, source, where),
            tokens,
            kinds,
            control,
            user_defined,
            has_space_mark=spelling.has_space_mark,
            merges_whole_texts=_merges_whole_texts(document),
        )
    return JsonVocabulary(
        texts, tokens, kinds, encoder, _first_token(document), spelling.strips_prefix
    )


def fillers(ids: Iterable[int], size: int) -> dict[str, int]:
    """Tokens that no text has, for the ids below ``size`` that are missing: the library gives ids
    to tokens that are added by counting."""
    return {f"\ue000unused {token_id}": token_id for token_id in {*range(size)}.difference(ids)}


def _library(document: dict[str, Any], source: str, where: object) -> Library:
    vocab = document["model"]["vocab"]
    if isinstance(vocab, dict) and len(vocab) <= max(vocab.values(), default=-1):
        added = {each["id"] for each in document.get("added_tokens") or []}
        vocab |= fillers(added.union(vocab.values()), max(vocab.values()))
        source = json.dumps(document)
    try:
        return Library.from_str(source)
    except Exception as error:  # The library raises plain exceptions.
        raise ModelLoadError(f"{where}: {error}") from None


def _texts(
    document: _Json, model: _Json, vocab_size: int, where: object
) -> tuple[list[str], list[TokenKind]]:
    kind, vocab = model.get("type"), model.get("vocab")
    is_bpe = kind == "BPE" or (kind is None and "merges" in model)
    if is_bpe and isinstance(vocab, dict):
        entries = list(vocab.items())
    elif kind == "Unigram" and isinstance(vocab, list):
        entries = [(text, token_id) for token_id, (text, _) in enumerate(vocab)]
    else:
        raise UnsupportedModelError(
            f"{where}: the tokenizer {kind!r} is not supported; Ramet has BPE and Unigram"
        )
    for option in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(option):
            raise UnsupportedModelError(f"{where}: the tokenizer's {option} is not supported")
    texts = [f"<unused {token_id}>" for token_id in range(vocab_size)]
    kinds = [TokenKind.UNUSED] * vocab_size
    unknown = model.get("unk_token") if is_bpe else None
    unknown_id = None if is_bpe else model.get("unk_id")
    falls_back = bool(model.get("byte_fallback"))

    def put(text: str, token_id: int, kind: TokenKind) -> None:
        if isinstance(token_id, bool) or not isinstance(token_id, int):
            raise ModelLoadError(f"{where}: the id of {text!r} is {token_id!r}")
        if not 0 <= token_id < vocab_size:
            raise ModelLoadError(f"{where}: the token {text!r} has no row in the embedding")
        if not isinstance(text, str):
            raise ModelLoadError(f"{where}: the token {token_id} is {text!r}, not a text")
        texts[token_id], kinds[token_id] = text, kind

    for text, token_id in entries:
        is_byte = falls_back and BYTE_TEXT.fullmatch(text)
        is_unknown = token_id == unknown_id or text == unknown
        put(
            text,
            token_id,
            TokenKind.UNKNOWN if is_unknown else TokenKind.BYTE if is_byte else TokenKind.NORMAL,
        )
    for each in document.get("added_tokens") or []:
        kind = TokenKind.CONTROL if each.get("special") else TokenKind.USER_DEFINED
        put(each["content"], each["id"], kind)
    return texts, kinds


_SPACE_MARK_DECODER: tuple[_Json, ...] = (
    {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
    {"type": "Strip", "content": " ", "start": 1, "stop": 0},
)
"""The decoder steps of vocabularies with a space mark: the first, and optional others."""


class _Spelling(NamedTuple):
    """The spelling of bytes in token texts."""

    is_byte_level: bool
    has_space_mark: bool = False
    has_bytes: bool = False  # <0x0A>
    strips_prefix: bool = False


def _spelling(document: _Json, where: object) -> _Spelling:
    """What the decoder says of it; ``UnsupportedModelError`` for another kind of decoder."""
    decoder = document.get("decoder")
    steps = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else []
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"] or (
        not kinds and _cutting_steps(document)[-1].get("type") == "ByteLevel"
    ):
        return _Spelling(is_byte_level=True)
    if kinds == ["Metaspace"]:
        (step,) = steps
        if step.get("replacement") == SPACE_MARK:
            strips = step.get("prepend_scheme", "always") != "never" and step.get(
                "add_prefix_space", True
            )
            return _Spelling(False, has_space_mark=True, strips_prefix=bool(strips))
    rest = list(steps)
    found = set()
    for step in _SPACE_MARK_DECODER:
        if rest and rest[0] == step:
            found.add(step["type"])
            del rest[0]
    if rest or "Replace" not in found or ("Strip" in found and "Fuse" not in found):
        raise UnsupportedModelError(
            f"{where}: this decoder is not supported: {json.dumps(decoder)[:300]}"
        )
    return _Spelling(False, True, "ByteFallback" in found, "Strip" in found)


def _token_bytes(
    texts: Sequence[str], kinds: Sequence[TokenKind], spelling: _Spelling, where: object
) -> list[bytes]:
    """Control tokens, and in byte-level vocabularies all added tokens, are plain text."""
    if not spelling.is_byte_level:
        tokens = []
        for text, kind in zip(texts, kinds, strict=True):
            byte = BYTE_TEXT.fullmatch(text) if spelling.has_bytes else None
            if byte:
                tokens.append(bytes.fromhex(byte[1]))
            elif kind in (TokenKind.NORMAL, TokenKind.USER_DEFINED):
                tokens.append(text.replace(SPACE_MARK, " ").encode("utf-8", "surrogateescape"))
            else:
                tokens.append(text.encode("utf-8", "surrogateescape"))
        return tokens
    return alphabet_bytes(texts, kinds, where)


def alphabet_bytes(texts: Sequence[str], kinds: Sequence[TokenKind], where: object) -> list[bytes]:
    """Normal tokens are written in the byte alphabet, all others as plain text."""
    plain = [i for kind, ids in ids_by_kind(kinds).items() if kind != TokenKind.NORMAL for i in ids]
    normal = list(texts)
    for token_id in plain:
        normal[token_id] = ""
    try:
        tokens = decode_alphabet(normal)
    except KeyError as error:
        raise ModelLoadError(
            f"{where}: a token has {error.args[0]!r}, which is not in the byte alphabet"
        ) from None
    for token_id in plain:
        tokens[token_id] = texts[token_id].encode("utf-8", "surrogateescape")
    return tokens


def _tiktoken(
    document: _Json,
    model: _Json,
    tokens: Sequence[bytes],
    kinds: Sequence[TokenKind],
    control: Mapping[str, int],
    user_defined: Mapping[str, int],
) -> TextEncoder | None:
    """An encoder by ``tiktoken``, or None where that isn't certain to give the same ids."""
    rule = _byte_level_rule(document)
    merges = model.get("merges")
    if rule is None or model.get("byte_fallback") or not isinstance(merges, list):
        return None
    for each in document.get("added_tokens") or []:
        treats_space = each.get("lstrip") or each.get("rstrip") or each.get("single_word")
        if treats_space or (each.get("normalized") and rule.normal_form):
            return None
    pairs = [tuple(each.split(" ")) if isinstance(each, str) else tuple(each) for each in merges]
    left, right = decode_alphabet([a for a, _ in pairs]), decode_alphabet([b for _, b in pairs])
    by_kind = ids_by_kind(kinds)
    ordinary = [tokens[i] for i in by_kind[TokenKind.NORMAL]]
    if by_kind[TokenKind.UNKNOWN] or sum(len(token) == 1 for token in {*ordinary}) < 256:
        return None  # what has no token would be another, or nothing
    ranked = tiktoken_ranks(ordinary, left, right, ignores_merges=bool(model.get("ignore_merges")))
    if ranked is None:
        return None
    merger = ByteLevelMerger(tokens, kinds, ranked, rule)
    return SplitEncoder(merger, control, user_defined)


def _byte_level_rule(document: _Json) -> PreTokenizer | None:
    """The family's rule, where it is one that ``tiktoken`` follows equally."""
    normaliser = document.get("normalizer")
    steps = (normaliser or {}).get("normalizers", [normaliser] if normaliser else [])
    forms = [step.get("type") for step in steps]
    if forms not in ([], ["NFC"]):
        return None
    steps = _cutting_steps(document)
    kinds = [step.get("type") for step in steps]
    last = steps[-1] if steps else {}
    plain = not last.get("add_prefix_space", True)
    found = None
    if kinds == ["ByteLevel"] and plain and last.get("use_regex", True):
        found = pre_tokenizer("gpt-2")
    elif kinds == ["Digits", "ByteLevel"] and plain and last.get("use_regex", True):
        found = pre_tokenizer("smollm") if steps[0].get("individual_digits") else None
    elif kinds == ["Split", "ByteLevel"] and plain and not last.get("use_regex", True):
        isolated = steps[0].get("behavior") == "Isolated" and not steps[0].get("invert", False)
        pattern = (steps[0].get("pattern") or {}).get("Regex")
        found = covering_pattern(str(pattern)) if isolated else None
    return found and found.in_form("NFC" if forms else None)


def _cutting_steps(document: _Json) -> list[_Json]:
    """The steps of the pre-tokenizer."""
    rule = document.get("pre_tokenizer") or {}
    return list(rule["pretokenizers"]) if rule.get("type") == "Sequence" else [rule]


def _merges_whole_texts(document: _Json) -> bool:
    """Whether nothing but a space mark cuts the text that the model gets, and nothing but a space
    mark changes it."""
    rule = document.get("pre_tokenizer")
    if rule is not None and rule.get("type") != "Metaspace":
        return False
    model = document["model"]
    if model.get("type") == "Unigram" and model.get("byte_fallback"):
        return False  # it takes the text that a byte token is written as for that token
    normaliser = document.get("normalizer")
    steps = (normaliser or {}).get("normalizers", [normaliser] if normaliser else [])
    return all(
        (step.get("type"), step.get("prepend") or step.get("content"))
        in (("Prepend", SPACE_MARK), ("Replace", SPACE_MARK))
        and step.get("pattern", {"String": " "}) == {"String": " "}
        for step in steps
    )


def _first_token(document: _Json) -> int | None:
    """The id that the post-processor puts before a single text."""
    processor = document.get("post_processor") or {}
    steps = processor.get("processors", [processor])
    for step in steps:
        if step.get("type") == "TemplateProcessing":
            template = step.get("single") or [{}]
            if (first := template[0].get("SpecialToken")) is not None:
                return int(step["special_tokens"][first["id"]]["ids"][0])
    return None
