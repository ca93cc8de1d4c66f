"""What is followed in one property's or one item's value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ramet.grammars.json_schema.schema.formula import Formula, all_of, conjuncts, negate


@dataclass(frozen=True, slots=True)
class Child:
    """What is followed in one property's or item's value.

    Attributes:
        nodes: the node that must hold, then the nodes whose verdicts are wanted.
        verdict_of: for each optional atom, the index in ``nodes`` of its verdict; -1: it holds
            for sure; -2: it fails for sure.
        atoms: those optional atoms.
    """

    nodes: tuple[Formula, ...]
    atoms: tuple[Hashable, ...]
    verdict_of: tuple[int, ...]

    def verdicts(self, verdict: tuple[bool, ...]) -> list[tuple[Hashable, bool]]:
        """Each optional atom, and whether the value agrees with it."""
        return [
            (a, True if v == -1 else False if v == -2 else verdict[v - 1])
            for a, v in zip(self.atoms, self.verdict_of, strict=True)
        ]


def make_child(must: Sequence[Formula], wanted: Sequence[tuple[Hashable, Formula]]) -> Child:
    """The child for nodes that must hold and atoms whose nodes are wanted."""
    first = all_of(must)
    sure = set(conjuncts(first))
    nodes: dict[Formula, int] = {}
    verdict_of = []
    for _, node in wanted:
        if node.op == "true" or node in sure:
            verdict_of.append(-1)
        elif node.op == "false" or negate(node) in sure:
            verdict_of.append(-2)
        else:
            verdict_of.append(nodes.setdefault(node, len(nodes) + 1))
    return Child((first, *nodes), tuple(a for a, _ in wanted), tuple(verdict_of))
