"""Boolean formulas: how schemas combine. Immutable, compared and hashed by structure.

One class serves two levels. A *node* is a formula over schemas: a value satisfies it or not. A
*typed* formula is over ``atoms``: single constraints on values of one JSON type.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

_SEQUENCE = (list, tuple)
_FEW = 2
_MANY = 32
"""The most parts of a formula that caches the set of its atoms; of a larger one its parts do."""


class Formula:
    """A formula: ``op`` is ``atom``, ``true``, ``false``, ``not``, ``all``, ``any`` or ``one``.

    ``parts`` holds the operands; for an atom, the atom itself. ``one`` is true if exactly one of
    its parts is.
    """

    __slots__ = ("_atoms", "_hash", "op", "parts")

    def __init__(self, op: str, parts: tuple[Hashable, ...]) -> None:
        self.op = op
        self.parts = parts
        self._hash = hash((op, parts))
        self._atoms: frozenset[Hashable] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Formula)
            and self._hash == other._hash
            and self.op == other.op
            and self.parts == other.parts
        )

    def __repr__(self) -> str:
        if self.op in ("true", "false"):
            return self.op
        return f"{self.op}({', '.join(map(repr, self.parts))})"

    def has_any(self, values: frozenset[Hashable]) -> bool:
        """Whether one of the formula's atoms is in a set."""
        if self._atoms is None:
            if len(self.parts) > _MANY:
                return any(p.has_any(values) for p in self.operands)
            self._atoms = frozenset(atoms(self))
        return not self._atoms.isdisjoint(values)

    @property
    def operands(self) -> tuple[Formula, ...]:
        """The parts of a compound formula."""
        return self.parts  # type: ignore[return-value]


TRUE = Formula("true", ())
FALSE = Formula("false", ())


def atom(value: Hashable) -> Formula:
    """The formula that is one atom."""
    return Formula("atom", (value,))


def negate(formula: Formula) -> Formula:
    """Not ``formula``."""
    if formula is TRUE or formula.op == "true":
        return FALSE
    if formula.op == "false":
        return TRUE
    if formula.op == "not":
        return formula.operands[0]
    return Formula("not", (formula,))


def all_of(parts: Iterable[Formula]) -> Formula:
    """The conjunction; true if there are no parts."""
    return _join("all", parts, identity=TRUE, absorbing=FALSE)


def any_of(parts: Iterable[Formula]) -> Formula:
    """The disjunction; false if there are no parts."""
    return _join("any", parts, identity=FALSE, absorbing=TRUE)


def _join(op: str, parts: Iterable[Formula], *, identity: Formula, absorbing: Formula) -> Formula:
    """Conjunction or disjunction, flattened, without repeated parts.

    Args:
        identity: the formula that changes nothing as a part.
        absorbing: the formula that decides the result as a part.
    """
    if isinstance(parts, _SEQUENCE) and len(parts) < _FEW:
        return parts[0] if parts else identity
    seen: dict[Formula, None] = {}
    for part in _flat(op, parts):
        if part.op == absorbing.op:
            return absorbing
        if part.op != identity.op:
            seen[part] = None
    for part in seen:
        if part.op == "not" and part.operands[0] in seen:
            return absorbing
    if len(seen) == 1:
        return next(iter(seen))
    return Formula(op, tuple(seen)) if seen else identity


def _flat(op: str, parts: Iterable[Formula]) -> Iterator[Formula]:
    for part in parts:
        if part.op == op:
            yield from part.operands
        else:
            yield part


def one_of(parts: Iterable[Formula]) -> Formula:
    """Exactly one of the parts."""
    left: list[Formula] = []
    num_true = 0
    for part in parts:
        if part.op == "true":
            num_true += 1
        elif part.op != "false":
            left.append(part)
    if num_true > 1:
        return FALSE
    if num_true == 1:
        return all_of(map(negate, left))
    if len(left) <= 1:
        return left[0] if left else FALSE
    return Formula("one", tuple(left))


def replace(formula: Formula, of: Callable[[Hashable], Formula | None]) -> Formula:
    """The formula with each atom a replaced by ``of(a)``, where that is not None."""
    op = formula.op
    if op == "atom":
        new = of(formula.parts[0])
        return formula if new is None else new
    if op in ("true", "false"):
        return formula
    parts = [replace(p, of) for p in formula.operands]
    if all(a is b for a, b in zip(parts, formula.operands, strict=True)):
        return formula
    if op == "not":
        return negate(parts[0])
    if op == "all":
        return all_of(parts)
    return any_of(parts) if op == "any" else one_of(parts)


def assign(formula: Formula, truths: Mapping[Hashable, Formula]) -> Formula:
    """The formula with some atoms replaced; parts that have none of them are left alone."""
    return _assign(formula, truths, frozenset(truths))


def _assign(
    formula: Formula, truths: Mapping[Hashable, Formula], keys: frozenset[Hashable]
) -> Formula:
    op = formula.op
    if op == "atom":
        return truths.get(formula.parts[0], formula)
    parts: list[Formula] = []
    is_same = True
    for part in formula.operands:
        new = part
        if part.has_any(keys):
            new = _assign(part, truths, keys)
            if new.op == "false" and op == "all":
                return FALSE
            is_same = is_same and new is part
        parts.append(new)
    if is_same:
        return formula
    if op == "not":
        return negate(parts[0])
    if op == "all":
        return all_of(parts)
    return any_of(parts) if op == "any" else one_of(parts)


def truth_of(formula: Formula, of: Callable[[Hashable], bool]) -> bool:
    """A formula's value, given its atoms'."""
    op = formula.op
    if op == "atom":
        return of(formula.parts[0])
    if op == "all":
        return all(truth_of(p, of) for p in formula.operands)
    if op == "any":
        return any(truth_of(p, of) for p in formula.operands)
    if op == "not":
        return not truth_of(formula.operands[0], of)
    if op == "one":
        return sum(truth_of(p, of) for p in formula.operands) == 1
    return op == "true"


def atoms(formula: Formula) -> Iterator[Hashable]:
    """Every atom, in order, repeats included."""
    if formula.op == "atom":
        yield formula.parts[0]
    else:
        for part in formula.operands:
            yield from atoms(part)


def conjuncts(formula: Formula) -> tuple[Formula, ...]:
    """The parts of a conjunction; a formula of another kind is its only part."""
    if formula.op == "all":
        return formula.operands
    return () if formula.op == "true" else (formula,)
