"""A cache of languages, automata and subschemas for many compilations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from ramet.grammars.json_schema.schema.documents import Leaf
from ramet.grammars.limits import CompileLimits
from ramet.grammars.regular import Dfa
from ramet.grammars.regular.automata.store import AutomatonStore

from .text_sets import num_bytes

_T = TypeVar("_T")


class Remembered:
    """Results of compilations, by description, up to a bound in bytes.

    ``store``, if given, keeps automata on disk.

    Attributes:
        decoded: by format, all strings of one text that are of it (see ``formats.decoded``).
        num_bytes: approximate memory of the results; no more than ``max_bytes``.
        leaves: subschemas that were found to be sound, by content.
    """

    def __init__(
        self,
        limits: CompileLimits,
        capacity: int = 4096,
        store: AutomatonStore | None = None,
        max_bytes: int = 64 << 20,
        decoded: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.limits = limits
        self.decoded = decoded or {}
        self._store = store
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self.num_bytes = 0
        self.leaves: dict[Hashable, Leaf] = {}

    def share(self, leaf: Leaf) -> None:
        """Share a leaf without subschemas among schemas with equal content."""
        if len(self.leaves) >= self._capacity:
            self.leaves.clear()
        self.leaves[leaf.content] = leaf

    def remember(self, key: Hashable, make: Callable[[], _T]) -> _T:
        """``make()``, or what it gave for an equal key."""
        try:
            self._known.move_to_end(key)
            known: _T = self._known[key]
            return known
        except KeyError:
            pass
        made = make()
        self._known[key] = made
        self.num_bytes += num_bytes(made)
        while len(self._known) > self._capacity or (
            self.num_bytes > self._max_bytes and len(self._known) > 1
        ):
            self.num_bytes -= num_bytes(self._known.popitem(last=False)[1])
        return made

    def stored(self, description: str, make: Callable[[], Dfa]) -> Dfa:
        """``make()``, or what is on disk under a description."""
        if self._store is None:
            return make()
        return self._store.get(description, make, self.limits.regular.max_states)
