"""The cases in which formulas have given truth values, as a tableau (Smullyan, 1968).

Contradictory cases are pruned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator

from ramet.grammars.json_schema.schema.atoms import Has, Length, Size
from ramet.grammars.json_schema.schema.formula import Formula, atoms

Case = dict[Hashable, bool]
"""An assignment of some atoms that makes a formula true for any values of the others."""

_MAX_TRIALS = 8
"""Alternatives of which ``likely_case`` tries that they are the one that holds."""


def expand(
    goals: list[tuple[Formula, bool]],
    case: Case,
    can_meet: Callable[[Case], bool],
    count: Callable[[], None],
) -> Iterator[Case]:
    """The cases that extend ``case``, meet the goals, and are allowed by ``can_meet``, which must
    refuse every larger case than one that it refuses. Choices are put off to the last. ``count`` is
    called for each case that is looked at.
    """
    choices: list[tuple[Formula, bool]] = []
    while goals:
        while goals:
            formula, truth = goals.pop()
            op = formula.op
            if op in ("true", "false"):
                if (op == "true") != truth:
                    return
            elif op == "atom":
                if case.setdefault(formula.parts[0], truth) != truth:
                    return
            elif op == "not":
                goals.append((formula.operands[0], not truth))
            elif op != "one" and (op == "all") == truth:
                goals.extend((p, truth) for p in reversed(formula.operands))
            else:
                choices.append((formula, truth))
        open_choices = []
        for formula, truth in choices:
            so_far = _value(formula, case)
            if so_far is None:
                if formula.op == "one":
                    open_choices.append((formula, truth))
                    continue
                open_parts, _ = _open_parts(formula, case)
                if len(open_parts) == 1:
                    goals.append((open_parts[0], truth))
                else:
                    open_choices.append((formula, truth))
            elif so_far != truth:
                return
        choices = open_choices
    count()
    if not can_meet(case):
        return
    if not choices:
        yield case
        return
    formula, truth = choices[0]
    for alternative in _alternatives(formula, truth, *_open_parts(formula, case)):
        yield from expand([*reversed(choices[1:]), *alternative], dict(case), can_meet, count)


def likely_case(goals: Iterable[tuple[Formula, bool]]) -> Case | None:
    """A case that meets the goals, by the easiest choices without going back; None: these fail.

    Of forty alternatives, it takes one evaluation each where ``expand`` takes one each a choice.
    """
    case: Case = {}
    return case if all(_assume(formula, truth, case) for formula, truth in goals) else None


def _assume(formula: Formula, truth: bool, case: Case) -> bool:
    """Extends a case by the easiest way to give a formula its truth; False if that contradicts."""
    op = formula.op
    if op == "atom":
        return case.setdefault(formula.parts[0], truth) == truth
    if op in ("true", "false"):
        return (op == "true") == truth
    if op == "not":
        return _assume(formula.operands[0], not truth, case)
    if op != "one" and (op == "all") == truth:
        parts = sorted(formula.operands, key=lambda p: p.op not in ("atom", "not"))
        return all(_assume(p, truth, case) for p in parts)
    so_far = _value(formula, case)
    if so_far is not None:
        return so_far == truth
    parts, num_true = _open_parts(formula, case)
    if op != "one":
        return _assume(min(parts, key=lambda p: _effort(p, truth)), truth, case)
    if not truth and num_true:
        return _assume(parts[0], True, case)
    if not truth or num_true:
        return all(_assume(p, False, case) for p in parts)
    for part in sorted(parts, key=lambda p: _num_open_names(p, case))[:_MAX_TRIALS]:
        trial = dict(case)
        if _assume(part, True, trial) and all(
            _assume(p, False, trial) for p in parts if p is not part
        ):
            case.update(trial)
            return True
    return False


def _num_open_names(formula: Formula, case: Case) -> int:
    """How many names that a formula mentions are not decided."""
    return sum(isinstance(a, Has) and a not in case for a in atoms(formula))


def _value(formula: Formula, case: Case) -> bool | None:
    """A formula's value as far as a case decides it."""
    op = formula.op
    if op == "atom":
        return case.get(formula.parts[0])
    if op in ("true", "false"):
        return op == "true"
    if op == "not":
        inner = _value(formula.operands[0], case)
        return None if inner is None else not inner
    is_open = False
    if op == "one":
        num_true = 0
        for part in formula.operands:
            value = _value(part, case)
            if value:
                num_true += 1
                if num_true > 1:
                    return False
            is_open = is_open or value is None
        return None if is_open else num_true == 1
    decisive = op == "any"
    for part in formula.operands:
        value = _value(part, case)
        if value is decisive:
            return decisive
        is_open = is_open or value is None
    return None if is_open else not decisive


def _open_parts(formula: Formula, case: Case) -> tuple[list[Formula], int]:
    """The parts that a case doesn't decide, and how many it makes true."""
    found: list[Formula] = []
    num_true = 0
    for part in formula.operands:
        value = _value(part, case)
        if value is None:
            found.append(part)
        else:
            num_true += value
    return found, num_true


def _alternatives(
    formula: Formula, truth: bool, parts: list[Formula], num_true: int
) -> Iterator[list[tuple[Formula, bool]]]:
    """The ways to give a disjunction, or an exactly-one, its truth; the simplest first.

    ``parts`` are its open ones; ``num_true`` others are true.
    """
    if formula.op != "one":
        yield from ([(p, truth)] for p in sorted(parts, key=lambda p: _effort(p, truth)))
        return
    if truth:
        if num_true:
            yield [(p, False) for p in parts]
        else:
            for i, part in enumerate(parts):
                yield [*((p, False) for j, p in enumerate(parts) if j != i), (part, True)]
        return
    if not num_true:
        yield [(p, False) for p in parts]
        for first, second in itertools.combinations(parts, 2):
            yield [(first, True), (second, True)]
    else:
        yield from ([(p, True)] for p in parts)


def _effort(formula: Formula, truth: bool) -> int:
    """Estimated difficulty of making a formula true: names are easy, invalid values hard."""
    op = formula.op
    if op == "atom":
        value = formula.parts[0]
        if isinstance(value, Has | Size | Length):
            return 0
        return 1 if truth else 4
    if op == "not":
        return _effort(formula.operands[0], not truth)
    efforts = [_effort(p, truth) for p in formula.operands]
    return min(efforts) if (op == "any") == truth else sum(efforts)
