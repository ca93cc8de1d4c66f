"""Finds the first of several strings in a text that comes in pieces (Aho and Corasick 1975)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass


class StopStrings:
    """The automaton for some strings: immutable, so one serves any number of matchers.

    State 0 is the start. ``depth[state]`` is how many of the last characters could still become
    a string, ``match[state]`` the longest string that ends here, or None.
    """

    __slots__ = ("_edges", "_fallback", "depth", "match", "strings")

    def __init__(self, strings: Iterable[str]) -> None:
        self.strings = tuple(dict.fromkeys(strings))
        if "" in self.strings:
            raise ValueError("an empty string is always found")
        self._edges: list[dict[str, int]] = [{}]
        self._fallback = [0]
        self.depth = [0]
        self.match: list[str | None] = [None]
        for string in self.strings:
            self._add(string)
        self._link()

    def _add(self, string: str) -> None:
        state = 0
        for char in string:
            following = self._edges[state].get(char)
            if following is None:
                following = len(self._edges)
                self._edges[state][char] = following
                self._edges.append({})
                self._fallback.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match.append(None)
            state = following
        self.match[state] = string

    def _link(self) -> None:
        queue = deque(self._edges[0].values())
        while queue:
            state = queue.popleft()
            for char, following in self._edges[state].items():
                self._fallback[following] = self.advance(self._fallback[state], char)
                if self.match[following] is None:
                    self.match[following] = self.match[self._fallback[following]]
                queue.append(following)

    def advance(self, state: int, char: str) -> int:
        """The state behind one more character."""
        while True:
            following = self._edges[state].get(char)
            if following is not None:
                return following
            if state == 0:
                return 0
            state = self._fallback[state]


@dataclass(frozen=True, slots=True)
class StopMatch:
    """``string`` was found; it ends behind ``end`` characters of the piece just fed."""

    string: str
    end: int


class StopStringMatcher:
    """Reads a text piece by piece and says when one of the strings is complete.

    The first string to be complete wins; of several that end together, the longest.
    """

    __slots__ = ("_state", "stops")

    def __init__(self, stops: StopStrings) -> None:
        self.stops = stops
        self._state = 0

    @property
    def held_len(self) -> int:
        """The number of trailing characters that could still become one of the strings."""
        return self.stops.depth[self._state]

    def find(
        self, piece: str, counts: Callable[[StopMatch], bool] | None = None
    ) -> StopMatch | None:
        """Reads up to the first match in ``piece``, which restarts the matcher behind it.

        ``counts`` says of a match whether it is one; None: all are.
        """
        advance, match, state = self.stops.advance, self.stops.match, self._state
        for index, char in enumerate(piece):
            state = advance(state, char)
            string = match[state]
            if string is not None:
                found = StopMatch(string, index + 1)
                if counts is None or counts(found):
                    self._state = 0
                    return found
        self._state = state
        return None

    def skip(self, piece: str) -> None:
        """Reads ``piece``, taking no match for one."""
        advance, state = self.stops.advance, self._state
        for char in piece:
            state = advance(state, char)
        self._state = state
