"""Text encoders: the contract, and the part that most vocabularies share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

PromptPiece = tuple[str, bool]
"""A part of a prompt: its text, and whether that means the control token with this text."""


class TextEncoder(Protocol):
    """Encodes text in time O(n log n) or better of its length.

    ``continues`` says that the text follows other tokens: a vocabulary that puts a space before a
    text doesn't do so then.
    """

    def encode_pieces(self, pieces: Sequence[PromptPiece], *, continues: bool) -> list[int]:
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
        """The number of leading bytes whose tokens no text after ``text`` can change."""
        ...


class Merger(Protocol):
    """Encodes text without added tokens; the same contract as ``TextEncoder``."""

    def encode(self, text: str, *, prefixed: bool) -> list[int]:
        """The ids of ``text``; ``prefixed``: it begins a text, or follows an added token."""
        ...

    def encode_exactly(self, text: str) -> list[int] | None: ...

    def byte_id(self, byte: int) -> int | None: ...

    def settled_len(self, text: bytes) -> int: ...


class SplitEncoder:
    """Cuts text at user-defined tokens and control tokens, and merges what lies between them.

    Args:
        merger: encodes the text between added tokens.
        control: ids of control tokens, by text.
        user_defined: ids of tokens that are always whole, by text.
    """

    def __init__(
        self,
        merger: Merger,
        control: Mapping[str, int],
        user_defined: Mapping[str, int],
    ) -> None:
        self._merger = merger
        self._control = control
        self._user_defined = user_defined
        self._pattern = alternation(user_defined)
        whole = [text.encode("utf-8", "surrogateescape") for text in user_defined]
        self._begun = frozenset(text[:n] for text in whole for n in range(1, len(text)))
        self._longest_begun = max(map(len, self._begun), default=0)

    def encode_pieces(self, pieces: Sequence[PromptPiece], *, continues: bool) -> list[int]:
        ids: list[int] = []
        prefixed = not continues
        for text, is_control in pieces:
            if is_control:
                ids.append(self._added(text))
                prefixed = True
                continue
            for index, part in enumerate(split(self._pattern, text)):
                if index % 2:
                    ids.append(self._user_defined[part])
                    prefixed = True
                elif part:
                    ids += self._merger.encode(part, prefixed=prefixed)
                    prefixed = False
        return ids

    def encode_exactly(self, text: str) -> list[int] | None:
        ids: list[int] = []
        for index, part in enumerate(split(self._pattern, text)):
            found = [self._user_defined[part]] if index % 2 else self._merger.encode_exactly(part)
            if found is None:
                return None
            ids += found
        return ids

    def byte_id(self, byte: int) -> int | None:
        return self._merger.byte_id(byte)

    def settled_len(self, text: bytes) -> int:
        settled = self._merger.settled_len(text)
        for start in range(max(0, len(text) - self._longest_begun), settled):
            if text[start:] in self._begun:  # what follows may complete a user-defined token
                return self._merger.settled_len(text[: start + 1])
        return settled

    def _added(self, text: str) -> int:
        token_id = self._control.get(text)
        return self._user_defined[text] if token_id is None else token_id


def alternation(texts: Iterable[str]) -> re.Pattern[str] | None:
    """Matches any of ``texts``, the longest where several begin; as one group, for ``split``."""
    ordered = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, ordered))})") if ordered else None


def split(pattern: re.Pattern[str] | None, text: str) -> list[str]:
    """The parts of ``text`` between matches, and the matches at odd places."""
    return [text] if pattern is None else pattern.split(text)
