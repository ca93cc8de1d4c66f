"""A chat turn as a context manager."""

from __future__ import annotations

from typing import Generic, TypeVar

from ramet.lang.base.errors import RoleError
from ramet.lang.graph.nodes import Role
from ramet.lang.run.writer import Writer

S = TypeVar("S")


class Turn(Generic[S]):
    """A context manager: everything appended to the state inside belongs to one turn.

    Args:
        state: the state, which ``with`` returns.
        writer: the state's.
        is_whole: the turn was appended whole, and can't be entered.
    """

    def __init__(self, state: S, writer: Writer, role: Role, *, is_whole: bool) -> None:
        self._state = state
        self._writer = writer
        self._role: Role = role
        self._is_whole = is_whole

    def __enter__(self) -> S:
        if self._is_whole:
            raise RoleError("this turn has ended already: with s.user(): takes no text")
        self._writer.begin_turn(self._role)
        return self._state

    def __exit__(self, *exc_info: object) -> None:
        self._writer.end_turn()
