"""Text from bytes that may be cut anywhere, inside characters too."""

from __future__ import annotations

import codecs

_new_decoder = codecs.getincrementaldecoder("utf-8")


class Utf8Assembler:
    """Holds back an incomplete character; bytes that can't become one turn into U+FFFD."""

    def __init__(self) -> None:
        self._decoder = _new_decoder("replace")
        self.num_held = 0
        """Bytes of a character that isn't whole yet."""

    def feed(self, piece: bytes, *, final: bool = False) -> str:
        """The text that is complete now. With ``final``, a cut character is one U+FFFD."""
        if not self.num_held and piece.isascii():
            return piece.decode("ascii")  # most tokens: the decoder takes several times as long
        text = self._decoder.decode(piece, final)
        self.num_held = len(self._decoder.getstate()[0])
        return text
