"""Branches: the states that a fork gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from ramet.lang.base.errors import UsageError
from ramet.lang.run.state import State
from ramet.lang.types.expressions import Appendable, Expr
from ramet.lang.types.values import Value

T = TypeVar("T")
P = ParamSpec("P")


class Branches:
    """Several states that share all that came before their fork.

    ``branches += x`` appends to every branch: the same thing, one of a list each, or what a
    function of a branch's number gives. ``branches["x"]`` are the Values of a variable, in order.
    """

    def __init__(self, origin: State, states: list[State]) -> None:
        self._origin = origin
        self._states = states

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)

    @overload
    def __getitem__(self, key: int) -> State: ...
    @overload
    def __getitem__(self, key: str) -> list[Value[Any]]: ...
    def __getitem__(self, key: int | str) -> State | list[Value[Any]]:
        return self._states[key] if isinstance(key, int) else [s[key] for s in self._states]

    def __setitem__(self, key: int, state: State) -> None:
        """Lets ``branches[0] += x`` be written; no other state can be put in a branch's place.

        Raises:
            UsageError: another state.
        """
        if state is not self._states[key]:
            raise UsageError("a branch can be appended to, not replaced")

    def __iadd__(
        self, item: Appendable | Sequence[Appendable] | Callable[[int], Appendable]
    ) -> Branches:
        if isinstance(item, Expr | str | Value):
            each: list[Appendable] = [item] * len(self)
        elif callable(item):
            each = [item(index) for index in range(len(self))]
        else:
            each = list(item)
            if len(each) != len(self):
                raise UsageError(f"{len(each)} things for {len(self)} branches")
        for state, part in zip(self._states, each, strict=True):
            state.append(part)
        return self

    def map(
        self,
        function: Callable[Concatenate[State, P], Awaitable[T] | T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> list[Value[Any]]:
        """Runs ``function(branch, ...)`` on every branch, concurrently: see ``State.spawn``."""
        return [state.spawn(function, *args, **kwargs) for state in self._states]

    def join(self) -> None:
        """Ends the branches and gives their variables back to the state that was forked.

        There ``s["x"]`` is then the list of the branches' values, in order. Nothing waits.
        """
        writers = [state._writer for state in self._states]
        origin = self._origin._writer
        known = origin.all_variables()
        names = dict.fromkeys(
            name for writer in writers for name in writer.variables if name not in known
        )
        for name in names:
            inputs = [w.variables[name].node_id for w in writers if name in w.variables]
            origin.join(name, tuple(inputs))
        for writer in writers:
            writer.close()
