"""Compiles a JSON Schema: checks each keyword and reference, and creates the first context."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any

from ramet.grammars.constraints import Formats, SchemaDialect, Whitespace
from ramet.grammars.errors import EmptyConstraintError, GrammarTooComplexError
from ramet.grammars.limits import CompileLimits
from ramet.grammars.pushdown.context_table import Context, ContextTable

from .contexts.contexts import ValueContext
from .contexts.opening import opened
from .contexts.values_plan import Values
from .schema.atoms import Contains, Items, Properties
from .schema.documents import Documents, Leaf
from .schema.formula import Formula, atom, atoms
from .schema.layout import Layout
from .schema.number_form import NumberForm
from .schema.number_sets import is_order_or_integer
from .solver.formulas.keyword_formulas import Typer
from .solver.frames import Frame, Top
from .solver.plans import PlanSolver
from .solver.value_sets.languages import Languages

_NUM_PREPARED = 24
"""Nodes, the outer ones, whose plans are computed when compiling and not on the way; likewise
the automata of numbers within bounds."""


class CompiledSchema:
    """A checked schema: each keyword's value is sound, each reference resolves, and some value is
    valid."""

    def __init__(
        self,
        schema: Any,
        documents: Mapping[str, Any],
        *,
        any_order: bool,
        whitespace: Whitespace,
        number_form: NumberForm,
        formats: Formats,
        dialect: SchemaDialect,
        languages: Languages,
        limits: CompileLimits,
    ) -> None:
        self._layout = Layout(whitespace)
        documents_ = Documents(
            schema, documents, limits, languages.leaves,
            annotations=("format",) if formats == "annotation" else (), dialect=dialect,
        )  # fmt: skip
        typer = Typer(documents_, languages, keep_names=not any_order)
        solver = PlanSolver(typer, languages, limits)
        self._values = Values(solver, opened, any_order=any_order, number_form=number_form)
        self._root = typer.node(typer.documents.root)
        nodes = _check(typer, languages, self._root, limits)
        for node in nodes:
            solver.satisfiable(node)
        if not solver.satisfiable(self._root):
            raise EmptyConstraintError("", _first_keyword(schema), "no value is valid")
        self._values.prepare(self._root, _NUM_PREPARED)
        for leaf in documents_.plain_leaves():
            # Its parts exist, so nothing is left to check or prepare.
            if leaf.parts:
                leaf.is_settled = True
                languages.share(leaf)

    def start(self, pushdown: ContextTable) -> Context:
        """The beginning of a text that is one value and nothing more."""
        return self.value(Top(self._layout), self._layout.before_text())

    def value(self, frame: Frame, prefixes: tuple[bytes, ...]) -> Context:
        """The beginning of a value in a frame, which determines what follows the value.

        ``prefixes`` are the white-space texts that may come before it.
        """
        return ValueContext(self._values.plan((self._root,), frame.accepts), frame, prefixes)


def _first_keyword(schema: Any) -> str:
    return next(iter(schema), "") if isinstance(schema, dict) else "false"


def _check(
    typer: Typer, languages: Languages, root: Formula, limits: CompileLimits
) -> list[Formula]:
    """Visits every subschema that can apply to a value, so that errors are found immediately.

    Returns:
        All nodes, from the innermost out: decided in this order, few need deep recursion.
    """
    end = time.thread_time() + limits.max_seconds
    seen: set[Hashable] = set()
    num_numbers = 0
    nodes: dict[Formula, None] = {root: None}
    pending = deque([root])
    while pending:
        for value in atoms(pending.popleft()):
            if not isinstance(value, Leaf) or value in seen or value.is_settled:
                continue
            seen.add(value)
            if time.thread_time() > end:
                raise GrammarTooComplexError(value.path, "", "the schema takes too long to compile")
            node = atom(value)
            for kind in typer.kinds(node):
                formula = typer.typed(node, kind)
                for typed_atom in atoms(formula):
                    inner = [n for n in _nodes(typed_atom) if n not in nodes]
                    nodes.update(dict.fromkeys(inner))
                    pending.extend(inner)
                if kind == "string" and formula.op != "false":
                    languages.prepare_text(formula)
                elif kind == "number" and formula.op != "false":
                    # The others are computed on demand, and can't exceed a limit then.
                    num_numbers += 1
                    if num_numbers <= _NUM_PREPARED or not is_order_or_integer(formula):
                        languages.number_set(formula)
                    else:
                        languages.has_numbers(formula)
    return list(reversed(nodes))


def _nodes(value: Hashable) -> list[Formula]:
    """The nodes of inner values that a typed atom names."""
    if isinstance(value, Properties):
        return [*(n for _, n in value.names), *(n for _, n in value.patterns), value.rest]
    if isinstance(value, Items):
        return [*value.prefix, value.rest]
    return [value.node] if isinstance(value, Contains) else []
