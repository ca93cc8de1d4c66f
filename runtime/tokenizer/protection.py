"""Keeps users' text from becoming control tokens while a template prints it.

A template mixes its own control tokens with users' text into one string. Before that, a mark (a
character that occurs nowhere in the prompt) is put into each control token's text inside users'
text, so only the template's own still match afterwards; then the marks are taken out again. Text
without such tokens reaches the template unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ramet.runtime.tokenizer.encoders import PromptPiece

# Non-characters (Unicode 23.7), never assigned, then private-use characters.
_MARK_CANDIDATES = (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xFFFFE))


class Protection:
    """Marks the texts of ``control_texts`` in values, and splits what was printed with them.

    Attributes:
        num_chars: of all texts in the values.
    """

    def __init__(self, control_texts: Iterable[str], *values: Any) -> None:
        ordered = sorted((t for t in control_texts if len(t) > 1), key=len, reverse=True)
        self._control = re.compile(f"({'|'.join(map(re.escape, ordered))})") if ordered else None
        # A lookahead finds overlapping starts too.
        self._starts = re.compile(f"(?=({'|'.join(map(re.escape, ordered))}))") if ordered else None
        self._prefixes = frozenset(t[:n] for t in ordered for n in range(1, len(t)))
        self._longest = max(map(len, ordered), default=1) - 1
        texts = list(_texts(values))
        self.num_chars = sum(map(len, texts))
        used = set().union(*map(set, texts))
        self.mark, self.end_mark = _unused(used, 2)

    def protect(self, value: Any) -> Any:
        """A copy of a JSON value whose strings, keys included, print as plain text."""
        if isinstance(value, str):
            return self._protect_text(value)
        if isinstance(value, Mapping):
            return {self.protect(key): self.protect(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, bytes):
            return [self.protect(item) for item in value]
        return value

    def split(self, printed: str) -> list[PromptPiece]:
        """The printed prompt, cut at its control tokens, without marks."""
        if self._control is None:
            return [(self.clean(printed), False)] if printed else []
        return [
            (self.clean(part), index % 2 == 1)
            for index, part in enumerate(self._control.split(printed))
            if part
        ]

    def clean(self, printed: str) -> str:
        return printed.replace(self.mark, "")

    def _protect_text(self, text: str) -> str:
        if self._control is None or self._starts is None:
            return text
        if self._control.search(text):  # much faster than looking for all starts at once
            parts = []
            end = 0
            for match in self._starts.finditer(text):
                parts.append(text[end : match.start() + 1])
                end = match.start() + 1
            text = self.mark.join([*parts, text[end:]])
        # What ends like the start of a control token could be completed by what is printed next.
        for length in range(min(self._longest, len(text)), 0, -1):
            if text[-length:] in self._prefixes:
                cut = len(text) - length + 1
                return text[:cut] + self.mark + text[cut:]
        return text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, Sequence) and not isinstance(value, bytes):
        for item in value:
            yield from _texts(item)


def _unused(used: set[str], count: int) -> list[str]:
    found: list[str] = []
    for code_point in _MARK_CANDIDATES:
        if chr(code_point) not in used:
            found.append(chr(code_point))
            if len(found) == count:
                return found
    raise ValueError("the text uses every private-use character")
