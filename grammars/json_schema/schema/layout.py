"""White space in JSON texts: where, and how much."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.grammars.constraints import Whitespace

_INDENT = b"  "


@dataclass(frozen=True, slots=True)
class Layout:
    """The white space at one depth of nesting (the depth matters to ``pretty`` alone).

    Each method gives the texts that may stand at its place.
    """

    kind: Whitespace
    depth: int = 0

    def deeper(self) -> Layout:
        """The layout inside an object or array."""
        return Layout(self.kind, self.depth + 1) if self.kind == "pretty" else self

    def _loose(self) -> tuple[bytes, ...]:
        return (b"", b" ") if self.kind == "compact" else (b"",)

    def before_text(self) -> tuple[bytes, ...]:
        """Before the whole text."""
        return self._loose()

    def before_item(self) -> tuple[bytes, ...]:
        """Before a key or an item, at the depth inside."""
        return (b"\n" + _INDENT * self.depth,) if self.kind == "pretty" else self._loose()

    def before_comma(self) -> tuple[bytes, ...]:
        """Before a comma."""
        return self._loose()

    def before_colon(self) -> tuple[bytes, ...]:
        """Before a colon."""
        return self._loose()

    def after_colon(self) -> tuple[bytes, ...]:
        """Before a property's value."""
        return (b" ",) if self.kind == "pretty" else self._loose()

    def empty_close(self) -> tuple[bytes, ...]:
        """Before the bracket that closes an empty object or array."""
        return (b"",) if self.kind == "pretty" else self._loose()

    def close(self) -> tuple[bytes, ...]:
        """Before the bracket that closes one with content, at the depth inside."""
        return (b"\n" + _INDENT * (self.depth - 1),) if self.kind == "pretty" else self._loose()
