"""From a JSON Schema to the start of its texts."""

# ruff: noqa: ARG002  (methods of one interface; not each needs all it is given)

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import Any

from ramet.grammars.automaton import Context
from ramet.grammars.constraints import Whitespace
from ramet.grammars.errors import EmptyConstraintError, GrammarTooComplexError
from ramet.grammars.limits import CompileLimits
from ramet.grammars.machine import Machine

from .atoms import Contains, Items, Properties
from .contexts import ValueContext
from .formula import Formula, atom, atoms
from .frames import Frame, Top
from .languages import Languages
from .layout import Layout
from .schema import Documents, Leaf
from .solver import Solver
from .typed import Typer
from .values_plan import Values


class CompiledSchema:
    """A schema that was checked: each keyword is sound, each reference leads somewhere, and some
    value is valid."""

    def __init__(
        self,
        schema: Any,
        documents: Mapping[str, Any],
        *,
        any_order: bool,
        whitespace: Whitespace,
        languages: Languages,
        limits: CompileLimits,
    ) -> None:
        self._layout = Layout(whitespace)
        typer = Typer(Documents(schema, documents, limits), languages)
        solver = Solver(typer, languages, limits)
        self._values = Values(solver, any_order=any_order)
        self._root = typer.node(typer.documents.root)
        _check(typer, languages, self._root, limits)
        if not solver.satisfiable(self._root):
            raise EmptyConstraintError("", _first_keyword(schema), "no value is valid")

    def start(self, machine: Machine) -> Context:
        """The beginning of a text that is one value and nothing more."""
        return self.value(Top(self._layout), self._layout.before_text())

    def value(self, frame: Frame, prefixes: tuple[bytes, ...]) -> Context:
        """The beginning of a value in a frame, which says what follows the value.

        ``prefixes`` are the white-space texts that may come before it.
        """
        return ValueContext(self._values.plan((self._root,), frame.accepts), frame, prefixes)


def _first_keyword(schema: Any) -> str:
    return next(iter(schema), "") if isinstance(schema, dict) else "false"


def _check(typer: Typer, languages: Languages, root: Formula, limits: CompileLimits) -> None:
    """Visit every subschema that a value can meet, so that what is unsound is found at once."""
    end = time.monotonic() + limits.max_seconds
    seen: set[Hashable] = set()
    pending: list[Formula] = [root]
    while pending:
        for value in atoms(pending.pop()):
            if not isinstance(value, Leaf) or value in seen:
                continue
            seen.add(value)
            if time.monotonic() > end:
                raise GrammarTooComplexError(value.path, "", "the schema takes too long to compile")
            node = atom(value)
            for kind in typer.kinds(node):
                formula = typer.typed(node, kind)
                for typed_atom in atoms(formula):
                    pending.extend(_nodes(typed_atom))
                if kind == "string" and formula.op != "false":
                    languages.prepare_text(formula)
                elif kind == "number" and formula.op != "false":
                    languages.numbers(formula)


def _nodes(value: Hashable) -> list[Formula]:
    """The nodes of inner values that a typed atom names."""
    if isinstance(value, Properties):
        return [*(n for _, n in value.names), *(n for _, n in value.patterns), value.rest]
    if isinstance(value, Items):
        return [*value.prefix, value.rest]
    return [value.node] if isinstance(value, Contains) else []
