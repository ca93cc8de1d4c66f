"""The names that complete an object."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ramet.grammars.json_schema.schema.atoms import Has
from ramet.grammars.json_schema.schema.formula import Formula, atom, atoms, conjuncts

from .tableau import likely_case

_MANY_NAMES = 8
"""With more names that may decide something, a completion takes those of one case."""


def missing_names(
    residual: Sequence[Formula], seen: int, label_of: Mapping[str, int]
) -> tuple[int, int]:
    """The labels of names that are required and not there, and of those whose presence may still
    decide something, as bits; of many, those of one likely case."""

    def bits(formulas: Iterable[Formula]) -> int:
        names = {a.name for f in formulas for a in atoms(f) if isinstance(a, Has)}
        return sum(1 << label_of[name] for name in names if name in label_of) & ~seen

    required = bits(part for part in conjuncts(residual[0]) if part.op == "atom")
    useful = bits(residual)
    if useful.bit_count() > _MANY_NAMES:
        case = likely_case([(residual[0], True)]) or {}
        useful = bits(atom(a) for a, holds in case.items() if holds) or useful
    return required, useful
