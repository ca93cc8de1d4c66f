"""Answers of the solver are remembered only when they are whole."""

from __future__ import annotations

import pytest

from ramet.grammars import CompileLimits, GrammarTooComplexError
from ramet.grammars.json_schema.languages import Languages
from ramet.grammars.json_schema.schema import Documents
from ramet.grammars.json_schema.solver import Solver
from ramet.grammars.json_schema.typed import Typer


def test_a_search_cut_short_does_not_pass_for_one_that_ended() -> None:
    limits = CompileLimits(max_branches=0)
    either = {"anyOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}
    documents = Documents({"anyOf": [{"type": "object"}, either]}, {}, limits)
    languages = Languages(limits)
    typer = Typer(documents, languages)
    solver = Solver(typer, languages, limits)
    nodes = tuple(typer.child(documents.root, "anyOf", i) for i in range(2))
    for _ in range(2):
        with pytest.raises(GrammarTooComplexError):
            list(solver.verdicts(nodes))
