"""Answers of the solver are remembered only when they are whole."""

from __future__ import annotations

import itertools

import pytest

from ramet.grammars import CompileLimits, GrammarTooComplexError
from ramet.grammars.json_schema.schema.documents import Documents
from ramet.grammars.json_schema.schema.formula import Formula, all_of, negate
from ramet.grammars.json_schema.solver.formulas.keyword_formulas import Typer
from ramet.grammars.json_schema.solver.plans import PlanSolver
from ramet.grammars.json_schema.solver.value_sets.languages import Languages


def test_a_search_under_way_leaves_no_verdict_out_for_later() -> None:
    limits = CompileLimits()
    either = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}
    nodes = [{"type": ["object", "null"]}, either, {"required": ["b"]}, {"type": "null"}]

    def solver_and_nodes() -> tuple[PlanSolver, tuple[Formula, ...]]:
        documents = Documents({"anyOf": nodes}, {}, limits)
        languages = Languages(limits)
        typer = Typer(documents, languages)
        found = tuple(typer.child(documents.root, "anyOf", i) for i in range(len(nodes)))
        return PlanSolver(typer, languages, limits), found

    solver, parts = solver_and_nodes()
    expected = list(solver.verdicts(parts))
    assert len(expected) == len(set(expected)) > 2
    solver, parts = solver_and_nodes()
    next(solver.verdicts(parts))
    # While whether an object can be is being decided, no object is said to be.
    open_keys = {(solver.typer.typed(all_of(p), "object"), "object") for p in pairs(parts)}
    solver._open.update(dict.fromkeys(open_keys, 0))
    assert len(list(solver.verdicts(parts))) < len(expected)
    solver._open.clear()
    assert list(solver.verdicts(parts)) == expected


def pairs(parts: tuple[Formula, ...]) -> list[list[Formula]]:
    """The conjunctions that a search for verdicts on three nodes may ask for."""
    signs = itertools.product((None, True, False), repeat=len(parts) - 1)
    return [
        [
            parts[0],
            *(p if t else negate(p) for p, t in zip(parts[1:], s, strict=True) if t is not None),
        ]
        for s in signs
    ]


def test_a_search_cut_short_does_not_pass_for_one_that_ended() -> None:
    limits = CompileLimits(max_branches=0)
    either = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}
    documents = Documents({"anyOf": [{"type": "object"}, either]}, {}, limits)
    languages = Languages(limits)
    typer = Typer(documents, languages)
    solver = PlanSolver(typer, languages, limits)
    nodes = tuple(typer.child(documents.root, "anyOf", i) for i in range(2))
    for _ in range(2):
        with pytest.raises(GrammarTooComplexError):
            list(solver.verdicts(nodes))
