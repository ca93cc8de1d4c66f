"""Lexemes made of ready automata, and the pieces that JSON's lexemes are put together from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from .automaton import DEAD, Lexeme, Row, ended
from .lexicon import Lexicon
from .moves import REACH
from .regular import Dfa

_SMALL = 48
"""Automata up to so many states are installed at once, larger ones as they are read."""


class DfaLexeme(Lexeme):
    """A ``Dfa`` that ends, with one label, wherever it accepts and the text goes on otherwise."""

    def __init__(self, dfa: Dfa, label: int = 0) -> None:
        self.dfa = dfa
        self.label = label
        self.key = ("dfa", dfa.digest, label)

    def install(self, lexicon: Lexicon) -> int:
        dfa = self.dfa
        if dfa.num_states > _SMALL:
            return lexicon.reserve_block(self, dfa.num_states)
        first = lexicon.new_states(dfa.num_states)
        moves = dfa.transitions
        lexicon.rows[first : lexicon.num_states] = np.where(moves >= 0, moves + first, DEAD)
        lexicon.states[first : lexicon.num_states, 1] = np.where(dfa.accepting, self.label, -1)
        return first

    def fill(self, lexicon: Lexicon, local: int, row: Row) -> int:
        moves = self.dfa.table[local]
        np.take(
            np.where(moves >= 0, moves + lexicon.install(self), DEAD), self.dfa.class_of, out=row
        )
        return self.label if self.dfa.accepting[local] else -1


class LabelledDfa:
    """A deterministic automaton whose accepting states carry labels.

    Attributes:
        transitions: int32[num_states, 256], -1 is dead; state 0 is the start.
        labels: int32[num_states]: the label of a text that ends here, or -1.
    """

    def __init__(self, transitions: NDArray[np.int32], labels: NDArray[np.int32]) -> None:
        self.transitions = transitions
        self.labels = labels

    @classmethod
    def of(cls, parts: Sequence[tuple[int, Dfa]]) -> LabelledDfa:
        """The union of languages that have no member in common, each with its label."""
        if len(parts) == 1:
            label, dfa = parts[0]
            return cls(dfa.transitions, np.where(dfa.accepting, label, -1).astype(np.int32))
        columns, class_of = np.unique(
            np.stack([dfa.class_of for _, dfa in parts]), axis=1, return_inverse=True
        )
        class_of = class_of.reshape(-1)
        moves = [
            d.table[:, c].tolist() for (_, d), c in zip(parts, columns.astype(int), strict=True)
        ]
        start = tuple((i, 0) for i, (_, dfa) in enumerate(parts) if dfa.num_states)
        numbers = {start: 0}
        order = [start]
        rows: list[list[int]] = []
        labels: list[int] = []
        for state in order:
            # By column, the parts that go on, each with its state.
            targets: list[list[tuple[int, int]]] = [[] for _ in range(columns.shape[1])]
            for i, s in state:
                for column, t in zip(targets, moves[i][s], strict=True):
                    if t >= 0:
                        column.append((i, t))
            row = []
            for target in map(tuple, targets):
                if not target:
                    row.append(-1)
                    continue
                number = numbers.get(target)
                if number is None:
                    number = numbers[target] = len(order)
                    order.append(target)
                row.append(number)
            rows.append(row)
            labels.append(next((parts[i][0] for i, s in state if parts[i][1].accepting[s]), -1))
        table = np.array(rows, np.int32)[:, class_of]
        return cls(np.ascontiguousarray(table), np.array(labels, np.int32))

    def reachable(self) -> list[int]:
        """By state, the set of labels that can be reached, as bits."""
        sets = [0 if label < 0 else 1 << label for label in self.labels.tolist()]
        targets = [sorted({t for t in row if t >= 0}) for row in self.transitions.tolist()]
        changed = True
        while changed:
            changed = False
            for state in reversed(range(len(sets))):
                bits = sets[state]
                for target in targets[state]:
                    bits |= sets[target]
                if bits != sets[state]:
                    sets[state] = bits
                    changed = True
        return sets


class LabelledDfaLexeme(Lexeme):
    """A labelled automaton that ends wherever it accepts and the text goes on otherwise."""

    def __init__(self, automaton: LabelledDfa, key: Hashable) -> None:
        self.automaton = automaton
        self.key = ("labelled", key)

    def install(self, lexicon: Lexicon) -> int:
        moves = self.automaton.transitions
        first = lexicon.new_states(len(moves))
        lexicon.rows[first : lexicon.num_states] = np.where(moves >= 0, moves + first, DEAD)
        lexicon.states[first : lexicon.num_states, 1] = self.automaton.labels
        for i, bits in enumerate(self.automaton.reachable()):
            lexicon.states[first + i, REACH] = lexicon.bit_set(bits)
        return first


class LiteralLexeme(Lexeme):
    """The rest of a fixed text, whose last byte ends the lexeme."""

    def __init__(self, text: bytes, label: int) -> None:
        self.text = text
        self.label = label
        self.key = ("literal", text, label)

    def install(self, lexicon: Lexicon) -> int:
        text = self.text
        first = lexicon.new_states(len(text))
        lexicon.rows[first : first + len(text)] = DEAD
        for i, byte in enumerate(text):
            last = i + 1 == len(text)
            lexicon.rows[first + i, byte] = ended(self.label) if last else first + i + 1
        return first


Branch = tuple[Sequence[bytes], dict[int, int], int | None]
"""What may begin a lexeme: any of some texts (white space), then a byte that leads to a row's
entry; the labels that are reachable that way, None for all."""


def install_head(lexicon: Lexicon, branches: Sequence[Branch]) -> int:
    """A start state that tells ``branches`` apart by their first bytes.

    A white-space text must not be continued by a byte of another branch with the same text.
    """
    nodes: dict[bytes, dict[int, int]] = {b"": {}}
    reach: dict[bytes, int | None] = {b"": 0}
    for prefixes, targets, bits in branches:
        for prefix in prefixes:
            for end in range(len(prefix) + 1):
                nodes.setdefault(prefix[:end], {})
                known = reach.setdefault(prefix[:end], 0)
                reach[prefix[:end]] = None if known is None or bits is None else known | bits
            nodes[prefix].update(targets)
    first = lexicon.new_states(len(nodes))
    numbers = {prefix: first + i for i, prefix in enumerate(nodes)}
    for prefix, targets in nodes.items():
        row = lexicon.rows[numbers[prefix]]
        row[:] = DEAD
        for byte, target in targets.items():
            row[byte] = target
        labels = reach[prefix]
        if labels is not None:
            lexicon.states[numbers[prefix], REACH] = lexicon.bit_set(labels)
    for prefix, number in numbers.items():
        if prefix:
            lexicon.rows[numbers[prefix[:-1]], prefix[-1]] = number
    return first
