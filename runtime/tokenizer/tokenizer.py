"""A model's vocabulary, and the way between text and its ids.

How ordinary text becomes ids is a ``Merger``'s part: ``byte_level`` and ``sentence_piece`` have
one each. Here is what all vocabularies share: tokens that are structure, tokens that are always
whole, bytes that are no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Protocol

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind

PromptPiece = tuple[str, bool]
"""A part of a prompt: its text, and whether that means the control token with this text."""

_STRAY_BYTE = re.compile("([\udc80-\udcff])")

_SPECIAL_KINDS = frozenset({TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED})


class Merger(Protocol):
    """Encodes text without control tokens and user-defined ones; takes time linear in the text's
    length, but for a logarithm."""

    def encode(self, text: str) -> list[int]:
        """The ids that the model's own tokenizer gives. What the vocabulary has no token for is
        left out; a lone surrogate counts as U+FFFD."""
        ...

    def encode_exactly(self, text: str) -> list[int] | None:
        """Ids whose bytes are exactly those of ``text``; None if the vocabulary can't spell it."""
        ...

    def byte_id(self, byte: int) -> int | None:
        """The token of one byte, or None."""
        ...

    def settled_len(self, text: bytes) -> int:
        """How many leading bytes are joined with nothing that may follow ``text``."""
        ...


class Tokenizer:
    """A vocabulary, and the way between text and its ids.

    Args:
        tokens: every id's bytes; of a control token, its text's.
        kinds: every id's kind.
        merger: what makes ids of ordinary text.
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
        merger: Merger,
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
        self._merger = merger
        by_kind = ids_by_kind(self.kinds)
        self.special_ids = frozenset(i for kind in _SPECIAL_KINDS for i in by_kind[kind])
        control = self._by_text(by_kind[TokenKind.CONTROL])
        user_defined = self._by_text(by_kind[TokenKind.USER_DEFINED])
        self.control_texts = frozenset(control)
        self._added = control | user_defined
        self._user_defined_pattern = _alternation(user_defined)
        self._added_pattern = _alternation(self._added)
        whole = [text.encode("utf-8", "surrogateescape") for text in user_defined]
        self._begun = frozenset(text[:n] for text in whole for n in range(1, len(text)))
        self._longest_begun = max(map(len, self._begun), default=0)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self._tokens)

    @cached_property
    def longest_token_len(self) -> int:
        """The most bytes that one token stands for."""
        return max(map(len, self._tokens))

    def encode(self, text: str, *, allow_special: bool = False, add_bos: bool = False) -> list[int]:
        """The ids of ``text``.

        Control tokens come out only with ``allow_special``; otherwise their text is text like any
        other. Bytes that the vocabulary has no token for (SmolLM2 lacks six control characters)
        are left out, as the reference tokenizers do; a lone surrogate counts as U+FFFD. Takes time
        linear in the text's length, but for a logarithm; white-space runs above 65,536 characters
        are encoded in parts.
        """
        ids = [self.bos_id] if add_bos and self.bos_id is not None else []
        pattern = self._added_pattern if allow_special else self._user_defined_pattern
        for index, part in enumerate(_split(pattern, text)):
            if index % 2:
                ids.append(self._added[part])
            else:
                ids += self._merger.encode(part)
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
        ids: list[int] = []
        for index, part in enumerate(_STRAY_BYTE.split(data.decode("utf-8", "surrogateescape"))):
            found: list[int] | None
            if index % 2:
                token_id = self._merger.byte_id(ord(part) - 0xDC00)
                found = None if token_id is None else [token_id]
            else:
                found = self._encode_exactly(part)
            if found is None:
                raise InvalidParameterError(f"the vocabulary can't spell {data!r}")
            ids += found
        return ids

    def settled_len(self, text: bytes) -> int:
        """How many leading bytes of ``text`` have the same tokens whatever follows it."""
        settled = self._merger.settled_len(text)
        for start in range(max(0, len(text) - self._longest_begun), settled):
            if text[start:] in self._begun:  # what follows may complete a user-defined token
                return self._merger.settled_len(text[: start + 1])
        return settled

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
        texts = [token or None for token in self._tokens]
        for token_id in self.special_ids:
            texts[token_id] = None
        return texts

    def _by_text(self, token_ids: Iterable[int]) -> dict[str, int]:
        return {self._tokens[i].decode("utf-8", "replace"): i for i in token_ids if self._tokens[i]}

    def _encode_exactly(self, text: str) -> list[int] | None:
        ids: list[int] = []
        for index, part in enumerate(_split(self._user_defined_pattern, text)):
            found = [self._added[part]] if index % 2 else self._merger.encode_exactly(part)
            if found is None:
                return None
            ids += found
        return ids


def _alternation(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of ``texts``, the longest where several begin; as one group, for ``split``."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, ordered))})") if ordered else None


def _split(pattern: re.Pattern[str] | None, text: str) -> list[str]:
    """The parts of ``text`` between matches, and those at odd places."""
    return [text] if pattern is None else pattern.split(text)
