"""Tracks states that may still grow: their prefixes may be used again."""

from __future__ import annotations

from collections.abc import Iterator


class OpenBranches:
    """The branches of a run that are open, by their ids.

    A branch's id is ``"<fork>.<index>"``, where the fork's id is ``"<branch>.<number>"``, and
    ``""`` is the first state's. Every operation takes time by a branch's depth alone.
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._below: dict[str, dict[int, int]] = {}  # of a branch: open branches by its forks

    def add(self, branch: str) -> None:
        """Adds a branch that has begun."""
        self._open.add(branch)
        for above, fork in _forks_above(branch):
            forks = self._below.setdefault(above, {})
            forks[fork] = forks.get(fork, 0) + 1

    def discard(self, branch: str) -> None:
        """Removes a branch that has ended, or whose state was garbage-collected."""
        if branch not in self._open:
            return
        self._open.remove(branch)
        for above, fork in _forks_above(branch):
            forks = self._below[above]
            forks[fork] -= 1
            if not forks[fork]:
                del forks[fork]
            if not forks:
                del self._below[above]

    def may_follow(self, node_id: str) -> bool:
        """Whether an open state holds the node, so that it may yet be extended."""
        branch, _, number = node_id.rpartition(".")
        if branch in self._open:
            return True
        forks = self._below.get(branch)
        # Forks number upward, so the last one that has open branches is the one to ask. Ids of
        # graphs that came as data may be any texts; nothing of those is open.
        return forks is not None and next(reversed(forks)) > int(number)


def _forks_above(branch: str) -> Iterator[tuple[str, int]]:
    """Of each branch that holds this one: its id, and the number of the fork that leads here."""
    while branch:
        fork_id = branch.rpartition(".")[0]
        branch, _, number = fork_id.rpartition(".")
        yield branch, int(number)
