"""Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019) from a model file.

Merging is done by ``tiktoken``. Its ranks are those of the file's merges, so the ids equal those
of the model's own tokenizer.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from functools import cached_property

import tiktoken

from ramet.runtime.errors import InvalidParameterError, ModelLoadError, UnsupportedModelError
from ramet.runtime.model.model_file import ModelFile
from ramet.runtime.tokenizer.byte_alphabet import decode_alphabet
from ramet.runtime.tokenizer.pretokenizers import PreTokenizer, bounded_chunks, pre_tokenizer

PromptPiece = tuple[str, bool]
"""A part of a prompt: its text, and whether that means the control token with this text."""

_END_OF_TURN_TEXTS = frozenset(
    {
        "<|endoftext|>",
        "<|end_of_text|>",
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|end|>",
        "<|endofturn|>",
        "<|return|>",
        "<|call|>",
    }
)
_END_OF_MESSAGE = "<|end|>"
"""Ends an output, too, unless the vocabulary has a token of its own for that (``<|return|>``):
then it ends one message of several."""


_STRAY_BYTE = re.compile("([\udc80-\udcff])")
_NO_TOKEN = -1


class TokenKind(enum.IntEnum):
    """What a token is, by the numbers of GGUF's ``tokenizer.ggml.token_type``."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    """Structure, not text: never made from a user's text, left out of the output's text."""
    USER_DEFINED = 4
    """Text that is always one token, such as ``<think>`` in some vocabularies."""
    UNUSED = 5
    BYTE = 6


_SPECIAL_KINDS = frozenset({TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED})


class Tokenizer:
    """A vocabulary, and the way between text and its ids.

    Args:
        tokens: every id's bytes; of a control token, its text's.
        kinds: every id's kind.
        merges: the bytes of merged tokens, best merge first.
        pre_tokenizer: the family's rule for cutting text into pieces.
        bos_id: begins a text, or None.
        eos_id: the end-of-text token that the model file names, or None.
        eos_ids: all tokens that end an output.
        adds_bos: whether a plain prompt begins with ``bos_id``.
        chat_template: the model's own Jinja template, or None.
    """

    def __init__(
        self,
        *,
        tokens: Sequence[bytes],
        kinds: Sequence[TokenKind],
        merges: Iterable[bytes],
        pre_tokenizer: PreTokenizer,
        bos_id: int | None = None,
        eos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        adds_bos: bool = False,
        chat_template: str | None = None,
    ) -> None:
        self._tokens = list(tokens)
        self.kinds = tuple(kinds)
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.eos_ids = frozenset(eos_ids) | ({eos_id} if eos_id is not None else set())
        self.adds_bos = adds_bos and bos_id is not None
        self.chat_template = chat_template
        self._pre_tokenizer = pre_tokenizer
        self.special_ids = frozenset(
            i for i, kind in enumerate(self.kinds) if kind in _SPECIAL_KINDS
        )
        control = _ids_by_text(self._tokens, self.kinds, TokenKind.CONTROL)
        user_defined = _ids_by_text(self._tokens, self.kinds, TokenKind.USER_DEFINED)
        self.control_texts = frozenset(control)
        self._added = control | user_defined
        self._user_defined_pattern = _alternation(user_defined)
        self._added_pattern = _alternation(self._added)
        self._bpe, self._id_of_rank = _build_bpe(
            self._tokens, self.kinds, merges, pre_tokenizer.pattern
        )

    @classmethod
    def from_gguf(cls, file: ModelFile) -> Tokenizer:
        """The tokenizer in a model file; ``UnsupportedModelError`` unless it is byte-level BPE."""
        model = str(file.require("tokenizer.ggml.model"))
        if model != "gpt2":
            raise UnsupportedModelError(
                f"{file.path}: the tokenizer {model!r} is not supported; Ramet has byte-level "
                "BPE ('gpt2')"
            )
        texts: list[str] = file.require("tokenizer.ggml.tokens")
        merges: list[str] = file.require("tokenizer.ggml.merges")
        numbers = file.metadata.get("tokenizer.ggml.token_type")
        kinds = [TokenKind.NORMAL] * len(texts) if numbers is None else _kinds(file, numbers)
        if len(kinds) != len(texts):
            raise ModelLoadError(f"{file.path}: {len(texts)} tokens, and {len(kinds)} token types")
        rule = pre_tokenizer(str(file.metadata.get("tokenizer.ggml.pre", "gpt-2")))
        try:
            tokens = _token_bytes(texts, kinds)
            merged = decode_alphabet([merge.replace(" ", "", 1) for merge in merges])
        except KeyError as error:
            raise ModelLoadError(
                f"{file.path}: a token has {error.args[0]!r}, which is not in the byte alphabet"
            ) from None
        return cls(
            tokens=tokens,
            kinds=kinds,
            merges=merged,
            pre_tokenizer=rule,
            bos_id=file.metadata.get("tokenizer.ggml.bos_token_id"),
            eos_id=file.metadata.get("tokenizer.ggml.eos_token_id"),
            eos_ids=_end_ids(file, texts, kinds),
            adds_bos=bool(file.metadata.get("tokenizer.ggml.add_bos_token", rule.adds_bos)),
            chat_template=file.metadata.get("tokenizer.chat_template"),
        )

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self._tokens)

    def encode(self, text: str, *, allow_special: bool = False, add_bos: bool = False) -> list[int]:
        """The ids of ``text``.

        Control tokens come out only with ``allow_special``; otherwise their text is text like any
        other. Bytes that the vocabulary has no token for (SmolLM2 lacks six control characters)
        are left out, as the reference tokenizers do; a lone surrogate counts as U+FFFD. Takes time
        linear in the text's length; white-space runs above 65,536 characters are encoded in parts.
        """
        ids = [self.bos_id] if add_bos and self.bos_id is not None else []
        pattern = self._added_pattern if allow_special else self._user_defined_pattern
        if pattern is None:
            self._encode_ordinary(text, ids)
            return ids
        for index, part in enumerate(pattern.split(text)):
            if index % 2:
                ids.append(self._added[part])
            else:
                self._encode_ordinary(part, ids)
        return ids

    def encode_pieces(self, pieces: Iterable[PromptPiece]) -> list[int]:
        """The ids of a prompt whose control tokens are marked as such."""
        ids: list[int] = []
        for text, is_control in pieces:
            if is_control:
                ids.append(self._added[text])
            else:
                ids += self.encode(text)
        return ids

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids whose bytes are exactly ``data``, which need not be valid UTF-8.

        Well-formed text is encoded as ``encode`` does without normalisation, and stray bytes one
        by one. ``InvalidParameterError`` if the vocabulary has no token for one of the bytes.
        """
        ranks: list[int] = []
        for index, part in enumerate(_STRAY_BYTE.split(data.decode("utf-8", "surrogateescape"))):
            if index % 2:
                ranks.append(ord(part) - 0xDC00)  # a byte's rank is its value
            else:
                for chunk in bounded_chunks(part):
                    ranks += self._bpe.encode_ordinary(chunk)
        ids = [self._id_of_rank[rank] for rank in ranks]
        if _NO_TOKEN in ids:
            raise InvalidParameterError(f"the vocabulary can't spell {data!r}")
        return ids

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of some ids; bytes that are no UTF-8 become U+FFFD."""
        return self.decode_bytes(token_ids, skip_special=skip_special).decode("utf-8", "replace")

    def decode_bytes(self, token_ids: Iterable[int], *, skip_special: bool = True) -> bytes:
        """The bytes of some ids."""
        skipped = self.special_ids if skip_special else frozenset()
        return b"".join(self.token_bytes(i) for i in token_ids if i not in skipped)

    def token_bytes(self, token_id: int) -> bytes:
        """The token's bytes; of a control token, its text's."""
        if not 0 <= token_id < len(self._tokens):
            raise InvalidParameterError(
                f"there is no token {token_id}; ids are 0 to {len(self._tokens) - 1}"
            )
        return self._tokens[token_id]

    def is_special(self, token_id: int) -> bool:
        """Whether the token is structure and not text."""
        return token_id in self.special_ids

    def special_id(self, text: str) -> int | None:
        """The id of the control or user-defined token with exactly this text."""
        return self._added.get(text)

    @cached_property
    def vocabulary(self) -> list[bytes | None]:
        """Every id's bytes, None where the token is no text: what a grammar's vocabulary takes."""
        text_kinds = (TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.BYTE)
        return [
            token if kind in text_kinds and token else None
            for token, kind in zip(self._tokens, self.kinds, strict=True)
        ]

    def _encode_ordinary(self, text: str, ids: list[int]) -> None:
        for chunk in bounded_chunks(self._pre_tokenizer.normalise(text)):
            if chunk:
                ranks = self._bpe.encode_ordinary(chunk)
                found = map(self._id_of_rank.__getitem__, ranks)
                ids += [token_id for token_id in found if token_id != _NO_TOKEN]


def _build_bpe(
    tokens: Sequence[bytes], kinds: Sequence[TokenKind], merges: Iterable[bytes], pattern: str
) -> tuple[tiktoken.Encoding, list[int]]:
    """(the encoder, the id of each of its ranks).

    A byte's rank is its value; merged tokens follow in the order of merges. Bytes without a token
    have ranks too, for the encoder needs all 256; their id is ``_NO_TOKEN``.
    """
    text_kinds = (TokenKind.NORMAL, TokenKind.BYTE)
    id_of: dict[bytes, int] = {}
    for token_id, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        if kind in text_kinds:
            id_of.setdefault(token, token_id)
    single_bytes = [bytes([byte]) for byte in range(256)]
    ordered = dict.fromkeys(single_bytes) | dict.fromkeys(merges)
    id_of_rank = [id_of.get(token, _NO_TOKEN) for token in ordered]
    lost = id_of_rank[256:].count(_NO_TOKEN)
    if lost:
        raise ModelLoadError(f"{lost} merges make tokens that the vocabulary doesn't have")
    ranks = {token: rank for rank, token in enumerate(ordered)}
    bpe = tiktoken.Encoding("model", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return bpe, id_of_rank


def _ids_by_text(
    tokens: Sequence[bytes], kinds: Sequence[TokenKind], kind: TokenKind
) -> dict[str, int]:
    return {
        token.decode("utf-8", "replace"): token_id
        for token_id, (token, its_kind) in enumerate(zip(tokens, kinds, strict=True))
        if its_kind == kind and token
    }


def _alternation(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of ``texts``, the longest where several begin; as one group, for ``split``."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, ordered))})") if ordered else None


def _kinds(file: ModelFile, numbers: Iterable[int]) -> list[TokenKind]:
    by_number = {int(kind): kind for kind in TokenKind}
    try:
        return [by_number[number] for number in map(int, numbers)]
    except KeyError as error:
        raise ModelLoadError(f"{file.path}: unknown token type {error.args[0]}") from None


def _token_bytes(texts: Sequence[str], kinds: Sequence[TokenKind]) -> list[bytes]:
    """Normal tokens are written in the byte alphabet, all others as plain text."""
    normal = iter(
        decode_alphabet(
            [text for text, kind in zip(texts, kinds, strict=True) if kind == TokenKind.NORMAL]
        )
    )
    return [
        next(normal) if kind == TokenKind.NORMAL else text.encode("utf-8", "surrogateescape")
        for text, kind in zip(texts, kinds, strict=True)
    ]


def _end_ids(file: ModelFile, texts: Sequence[str], kinds: Sequence[TokenKind]) -> set[int]:
    """The file's end tokens, and the control tokens that are well known as such."""
    named = ("eos_token_id", "eot_token_id", "eom_token_id")
    ids = set(file.metadata.get("ramet.end_token_ids", ()))
    ids |= {
        int(i) for name in named if (i := file.metadata.get(f"tokenizer.ggml.{name}")) is not None
    }
    if any(not 0 <= i < len(texts) for i in ids):
        raise ModelLoadError(f"{file.path}: an end token is not in the vocabulary")
    control = {texts[i]: i for i, kind in enumerate(kinds) if kind == TokenKind.CONTROL}
    ends = ids | {i for text, i in control.items() if text in _END_OF_TURN_TEXTS}
    return ends - {control.get(_END_OF_MESSAGE, -1)} if "<|return|>" in control else ends
