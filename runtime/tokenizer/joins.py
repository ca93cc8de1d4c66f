"""Finds places to split a text so that no token spans them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


class JoinIndex:
    """Finds settled prefixes for a vocabulary that merges whole texts, without a pre-tokenizer.

    Args:
        tokens: the bytes of all tokens that merging, or the best segmentation, can give.
    """

    def __init__(self, tokens: Iterable[bytes]) -> None:
        self._sorted = sorted(token for token in tokens if len(token) > 1)
        self._longest = max(map(len, self._sorted), default=0)

    def settled_len(self, text: bytes) -> int:
        """Up to the last place that no token spans which begins like the text before it and has
        the byte behind it."""
        for cut in range(len(text) - 1, 0, -1):
            if text[cut] & 0xC0 != 0x80 and not self._may_be_joined(text, cut):
                return cut
        return 0

    def _may_be_joined(self, text: bytes, cut: int) -> bool:
        for start in range(max(0, cut - self._longest + 1), cut):
            head = text[start : cut + 1]
            at = bisect_left(self._sorted, head)
            if at < len(self._sorted) and self._sorted[at].startswith(head):
                return True
        return False
