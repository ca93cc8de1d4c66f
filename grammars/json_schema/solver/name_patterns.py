"""Classes of an object's unlisted names, by the patterns that they match."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import Properties
from ramet.grammars.json_schema.schema.formula import TRUE, Formula, all_of, any_of
from ramet.grammars.regular import Dfa

from .solver import Solver, signed
from .value_sets.text_sets import TextSet, without

_MAX_CLASSES, _MAX_LARGE = 64, 256
_MAX_NAMES = 4096

Classes = list[tuple[tuple[bool, ...], TextSet]]
"""Sets of names, each with the patterns that its names match."""


class NamePatterns:
    """The automata of some patterns side by side, read together."""

    def __init__(self, patterns: Sequence[Dfa]) -> None:
        num_states = max(p.num_states for p in patterns) + 1
        num_classes = max(p.table.shape[1] for p in patterns)
        # The last state is dead.
        self._dead = num_states - 1
        self._table = np.full((len(patterns), num_states, num_classes), self._dead, np.int32)
        self._accepting = np.zeros((len(patterns), num_states), np.bool_)
        for i, dfa in enumerate(patterns):
            size, classes = dfa.table.shape
            self._table[i, :size, :classes] = np.where(dfa.table < 0, self._dead, dfa.table)
            self._accepting[i, :size] = dfa.accepting
        self._classes = np.stack([p.class_of for p in patterns])
        starts = np.array([self._dead if p.is_empty else p.start for p in patterns])
        self._last: tuple[bytes, list[NDArray[np.int32]]] = b"", [starts.astype(np.int32)]
        self._all = np.arange(len(patterns))
        self.matched = lru_cache(_MAX_NAMES)(self._matched)

    def _matched(self, name: str) -> tuple[bool, ...]:
        """By pattern, whether a name matches it. Reuses the state after a common prefix."""
        data = name.encode("utf-8", "surrogatepass")
        last, path = self._last
        shared = next((i for i, (a, b) in enumerate(zip(last, data, strict=False)) if a != b), None)
        shared = min(len(last), len(data)) if shared is None else shared
        path = path[: shared + 1]
        for byte in data[shared:]:
            path.append(self._table[self._all, path[-1], self._classes[:, byte]])
        self._last = data, path
        return tuple(self._accepting[self._all, path[-1]].tolist())


def name_classes(
    solver: Solver,
    properties: Sequence[Properties],
    patterns: list[Formula],
    names: frozenset[str],
    *,
    may_be_wide: bool,
) -> tuple[Classes, NamePatterns | None]:
    """The classes of names other than ``names``.

    Where there are too many, all of them are one class, and the patterns decide by a name's text.
    That needs a value that satisfies all patterns at once: then no name leads to a dead end.

    Args:
        properties: the object's conditions on properties.
        patterns: theirs.
        may_be_wide: whether one class may do.

    Raises:
        GrammarTooComplexError: too many classes of names, and not all of their values can agree.
    """
    if len(patterns) <= _MAX_CLASSES or not may_be_wide:
        classes = _split(solver, patterns, names, _MAX_CLASSES)
        if classes is not None:
            return classes, None
    texts = _any_names(solver, properties) if may_be_wide else None
    if texts is not None:
        name_patterns = NamePatterns([solver.languages.text_dfa(p) for p in patterns])
        return [((True,) * len(patterns), texts)], name_patterns
    classes = _split(solver, patterns, names, _MAX_LARGE)
    if classes is None:
        raise GrammarTooComplexError(
            "", "patternProperties",
            f"more than {_MAX_LARGE} kinds of names overlap, and not all of their values can agree",
        )  # fmt: skip
    return classes, None


def _split(
    solver: Solver, patterns: list[Formula], names: frozenset[str], most: int
) -> Classes | None:
    """The names by which patterns they match; None if there are more than ``most`` ways."""
    languages = solver.languages
    found: list[tuple[tuple[bool, ...], Formula]] = [((), TRUE)]
    for pattern in patterns:
        split = []
        for vector, formula in found:
            for truth in (True, False):
                part = all_of([formula, signed(pattern, truth)])
                if not languages.texts(part).is_empty:
                    split.append(((*vector, truth), part))
        found = split
        if len(found) > most:
            return None
    # Names with a label of their own are laid over the classes; a class needs at least one
    # name more to be worth a label.
    kept = []
    for vector, formula in found:
        rest = languages.texts(without(formula, names)) if patterns else None
        if rest is None or not rest.is_empty:
            kept.append((vector, languages.texts(formula)))
    return kept


def _any_names(solver: Solver, properties: Sequence[Properties]) -> TextSet | None:
    """The names that may come where any set of patterns may match; None if some set may not."""
    nodes = [node for each in properties for _, node in each.patterns]
    closed = [each for each in properties if not solver.satisfiable(each.rest)]
    open_rests = [each.rest for each in properties if each not in closed]
    if not solver.satisfiable(all_of([*nodes, *open_rests])):
        return None
    texts = solver.languages.texts(all_of(any_of(p for p, _ in each.patterns) for each in closed))
    return texts if texts.size is None else None


def is_text(name: str) -> bool:
    """Whether a name can be written as UTF-8; one with half a surrogate pair can't."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
