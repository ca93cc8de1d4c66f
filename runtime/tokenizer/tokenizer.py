"""A model's vocabulary, and the way between text and its ids.

How text becomes ids is a ``TextEncoder``'s part (see ``encoders``). Here is what all vocabularies
share: tokens that are structure, each token's bytes, and bytes that are no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.tokenizer.encoders import PromptPiece, TextEncoder, alternation, split
from ramet.runtime.tokenizer.kinds import TokenKind, ids_by_kind

_STRAY_BYTE = re.compile("([\udc80-\udcff])")

_SPECIAL_KINDS = frozenset({TokenKind.CONTROL, TokenKind.UNKNOWN, TokenKind.UNUSED})


class Tokenizer:
    """A vocabulary, and the way between text and its ids.

    Args:
        tokens: every id's bytes; of a control token, its text's.
        kinds: every id's kind.
        encoder: turns text into ids.
        bos_id: begins a text, or None.
        eos_id: the end-of-text token that the model file names, or None.
        eos_ids: all tokens that end an output.
        adds_bos: whether a plain prompt begins with ``bos_id``.
        chat_template: the model's own Jinja template, or None.
        strips_prefix: a whole text's first space is the vocabulary's own, and not of the text.
    """

    def __init__(
        self,
        *,
        tokens: Sequence[bytes],
        kinds: Sequence[TokenKind],
        encoder: TextEncoder,
        bos_id: int | None = None,
        eos_id: int | None = None,
        eos_ids: Iterable[int] = (),
        adds_bos: bool = False,
        chat_template: str | None = None,
        strips_prefix: bool = False,
    ) -> None:
        self._tokens = list(tokens)
        self.kinds = tuple(kinds)
        self.bos_id = bos_id
        self.eos_id = eos_id
        self.eos_ids = frozenset(eos_ids) | ({eos_id} if eos_id is not None else set())
        self.adds_bos = adds_bos and bos_id is not None
        self.chat_template = chat_template
        self._encoder = encoder
        self._strips_prefix = strips_prefix
        by_kind = ids_by_kind(self.kinds)
        self.special_ids = frozenset(i for kind in _SPECIAL_KINDS for i in by_kind[kind])
        control = texts_of_kind(self._tokens, by_kind[TokenKind.CONTROL])
        user_defined = texts_of_kind(self._tokens, by_kind[TokenKind.USER_DEFINED])
        self.control_texts = frozenset(control)
        self._added = control | user_defined
        self._control_pattern = alternation(control)

    @property
    def begin_id(self) -> int:
        """The token after which a text is scored that nothing precedes."""
        return self.bos_id if self.bos_id is not None else min(self.eos_ids)

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return len(self._tokens)

    @cached_property
    def longest_token_len(self) -> int:
        """The most bytes that one token stands for."""
        return max(map(len, self._tokens))

    def encode(
        self,
        text: str,
        *,
        allow_special: bool = False,
        add_bos: bool = False,
        continues: bool = False,
    ) -> list[int]:
        """The ids of ``text``.

        Control tokens come out only with ``allow_special``; otherwise their text is text like any
        other. ``continues`` says that the text follows other tokens, so no space is put before it.
        Bytes that the vocabulary has no token for (SmolLM2 lacks six control characters) are left
        out, as the reference tokenizers do; a lone surrogate counts as U+FFFD. Takes time linear in
        the text's length, but for a logarithm; white-space runs above 65,536 characters are encoded
        in parts.
        """
        ids = [self.bos_id] if add_bos and self.bos_id is not None else []
        parts = split(self._control_pattern, text) if allow_special else [text]
        pieces = [(part, index % 2 == 1) for index, part in enumerate(parts) if part]
        return ids + self._encoder.encode_pieces(pieces, continues=continues)

    def encode_pieces(self, pieces: Iterable[PromptPiece], *, continues: bool = False) -> list[int]:
        """The ids of a prompt whose control tokens are marked as such; see ``encode``."""
        return self._encoder.encode_pieces(list(pieces), continues=continues)

    def encode_bytes(self, data: bytes) -> list[int]:
        """Ids whose bytes are exactly ``data``, which need not be valid UTF-8.

        Well-formed text is encoded as ``encode`` does without normalisation, and stray bytes one
        by one. ``InvalidParameterError`` if the vocabulary has no token for one of the bytes.
        """
        ids: list[int] = []
        for index, part in enumerate(_STRAY_BYTE.split(data.decode("utf-8", "surrogateescape"))):
            found: list[int] | None
            if index % 2:
                token_id = self._encoder.byte_id(ord(part) - 0xDC00)
                found = None if token_id is None else [token_id]
            else:
                found = self._encoder.encode_exactly(part)
            if found is None:
                raise InvalidParameterError(f"the vocabulary can't spell {data!r}")
            ids += found
        return ids

    def settled_len(self, text: bytes) -> int:
        """The number of leading bytes of ``text`` whose tokens no following text can change."""
        return self._encoder.settled_len(text)

    def decode(self, token_ids: Iterable[int], *, skip_special: bool = True) -> str:
        """The text of some ids, as a whole; bytes that are no UTF-8 become U+FFFD.

        A space that the vocabulary puts before each text is not part of it. ``decode_bytes`` has
        it: what continues a text keeps its first space.
        """
        data = self.decode_bytes(token_ids, skip_special=skip_special)
        if self._strips_prefix:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

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


def texts_of_kind(tokens: Sequence[bytes], token_ids: Iterable[int]) -> dict[str, int]:
    """Ids by their tokens' text, without empty ones."""
    return {tokens[i].decode("utf-8", "replace"): i for i in token_ids if tokens[i]}
