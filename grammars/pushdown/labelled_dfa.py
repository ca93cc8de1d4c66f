"""Automata whose accepting states distinguish several languages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.limits import DEFAULT_LIMITS, too_complex
from ramet.grammars.regular import Dfa, RegularLimits
from ramet.grammars.regular.loops.canonical import joint_classes
from ramet.grammars.regular.loops.products import product
from ramet.grammars.regular.loops.tables import INT, INT32S, TABLE, Array
from ramet.jit import jit

_EITHER = 0b1110


class LabelledDfa:
    """A deterministic automaton whose accepting states carry labels. State 0 is the start.

    Attributes:
        class_of: uint8[256], each byte's class.
        table: int32[num_states, num_classes]; -1 is dead.
        labels: int32[num_states]: the label of a text that ends here, or -1.
    """

    def __init__(
        self, class_of: NDArray[np.uint8], table: NDArray[np.int32], labels: NDArray[np.int32]
    ) -> None:
        self.class_of = class_of
        self.table = table
        self.labels = labels

    @classmethod
    def of(
        cls, parts: Sequence[tuple[int, Dfa]], limits: RegularLimits = DEFAULT_LIMITS
    ) -> LabelledDfa:
        """The union of languages that have no member in common, each with its label.

        Raises:
            GrammarTooComplexError: it has more states than the limits allow.
        """
        parts = [part for part in parts if not part[1].is_empty] or parts[:1]
        label, dfa = parts[0]
        found = cls(dfa.class_of, dfa.table, np.where(dfa.accepting, label, -1).astype(np.int32))
        for label, dfa in parts[1:]:
            found = found._with(label, dfa, limits)
        return found

    def _with(self, label: int, dfa: Dfa, limits: RegularLimits) -> LabelledDfa:
        joint, of_self, of_dfa = joint_classes(self.class_of, dfa.class_of)
        status, table, _, pairs = product(
            self.table, self.labels >= 0, 0, dfa.table, dfa.accepting, 0, of_self, of_dfa, _EITHER,
            limits.states_for(len(of_self)),
        )  # fmt: skip
        if status:
            raise too_complex("a union of languages that are distinguished", limits)
        mine, theirs = pairs[:, 0], pairs[:, 1]
        labels = np.where(mine >= 0, self.labels[mine], -1)
        labels[(theirs >= 0) & dfa.accepting[theirs]] = label
        return LabelledDfa(joint.astype(np.uint8), table, labels.astype(np.int32))

    @property
    def transitions(self) -> NDArray[np.int32]:
        """int32[num_states, 256]: the next state for each byte, or -1.

        It takes a KiB a state, and so isn't kept.
        """
        return np.ascontiguousarray(self.table[:, self.class_of])

    def reachable(self) -> NDArray[np.uint64]:
        """uint64[num_states, num_words]: the labels that can be reached from each state."""
        found: NDArray[np.uint64] = _reachable(
            self.table, self.labels, int(self.labels.max(initial=0)) // 64 + 1
        )
        return found


@jit((TABLE, INT32S, INT))
def _reachable(table: Array, labels: Array, num_words: int) -> Array:
    num_states, num_classes = table.shape
    sets = np.zeros((num_states, num_words), np.uint64)
    for state in range(num_states):
        if labels[state] >= 0:
            sets[state, labels[state] >> 6] |= np.uint64(1) << np.uint64(labels[state] & 63)
    changed = True
    while changed:
        changed = False
        for state in range(num_states - 1, -1, -1):
            for c in range(num_classes):
                target = table[state, c]
                if target < 0 or target == state:
                    continue
                for word in range(num_words):
                    bits = sets[state, word] | sets[target, word]
                    if bits != sets[state, word]:
                        sets[state, word] = bits
                        changed = True
    return sets
