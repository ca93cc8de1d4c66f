"""Nodes of the completion search: a position, and the text that led there."""

from __future__ import annotations

from collections.abc import Sequence

from ramet.grammars.pushdown.parser_stack import Frozen, ParserStack

Piece = bytes | int
"""Text, or a special token's id."""


class SearchNode:
    """A position at a lexeme's border, and how the search came to it."""

    __slots__ = ("cost", "frozen", "is_goal", "parent", "parser_stack", "pieces")

    def __init__(
        self,
        parser_stack: ParserStack,
        cost: int,
        parent: SearchNode | None,
        *pieces: Piece,
        is_goal: bool = False,
    ) -> None:
        self.parser_stack = parser_stack
        self.cost = cost
        self.parent = parent
        self.pieces = pieces
        self.is_goal = is_goal
        self.frozen: Frozen | None = None


def piece_cost(piece: Piece) -> int:
    """Bytes; a special token counts as one."""
    return len(piece) if isinstance(piece, bytes) else 1


def pieces_of(goal: SearchNode) -> list[Piece]:
    """The text and special tokens from the search's start to a node."""
    found: list[tuple[Piece, ...]] = []
    node: SearchNode | None = goal
    while node is not None:
        found.append(node.pieces)
        node = node.parent
    return joined([piece for pieces in reversed(found) for piece in pieces])


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same pieces, with texts that follow each other as one."""
    result: list[Piece] = []
    for piece in pieces:
        if result and isinstance(piece, bytes) and isinstance(result[-1], bytes):
            result[-1] += piece
        elif piece != b"":
            result.append(piece)
    return result
