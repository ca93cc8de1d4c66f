"""What a schema evaluates, for unevaluatedProperties and unevaluatedItems."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import Has, Items, Pattern, Properties
from ramet.grammars.json_schema.schema.documents import Documents, Leaf
from ramet.grammars.json_schema.schema.formula import (
    FALSE,
    TRUE,
    Formula,
    all_of,
    any_of,
    atom,
    negate,
)
from ramet.grammars.json_schema.schema.keyword_values import subschemas

_MAX_GUARDS = 8


class SchemaReader(Protocol):
    """What turns subschemas into formulas."""

    documents: Documents

    def items(self, leaf: Leaf) -> tuple[Any, Any]: ...

    def child(self, leaf: Leaf, *steps: str | int) -> Formula: ...

    def typed(self, node: Formula, kind: str) -> Formula: ...


class Seen:
    """Names, patterns or items that a schema evaluates if ``guard`` holds."""

    def __init__(
        self,
        guard: Formula,
        names: frozenset[str],
        patterns: frozenset[str],
        everything: bool,
        num_items: int = 0,
        contains: Formula = FALSE,
    ) -> None:
        self.guard = guard
        self.names = names
        self.patterns = patterns
        self.everything = everything
        self.num_items = num_items
        self.contains = contains


def by_guards(leaf: Leaf, keyword: str, found: list[Seen], rest: Any) -> Formula:
    """The disjunction, over which guards hold, of those guards and ``rest(what they evaluate)``."""
    always = [s for s in found if s.guard.op == "true"]
    if any(s.everything for s in always):
        return TRUE
    sometimes: dict[Formula, list[Seen]] = {}
    for seen in found:
        if seen.guard.op != "true":
            sometimes.setdefault(seen.guard, []).append(seen)
    if len(sometimes) > _MAX_GUARDS:
        raise GrammarTooComplexError(
            f"{leaf.path}/{keyword}",
            keyword,
            f"what is evaluated depends on more than {_MAX_GUARDS} subschemas",
        )
    cases = []
    for truth in itertools.product((True, False), repeat=len(sometimes)):
        guards = [g if t else negate(g) for g, t in zip(sometimes, truth, strict=True)]
        there = [s for ss, t in zip(sometimes.values(), truth, strict=True) if t for s in ss]
        cases.append(all_of([*guards, rest(always + there)]))
    return any_of(cases)


def rest_of(seen: list[Seen], node: Formula) -> Formula:
    """Each property but those satisfies ``node``."""
    if any(s.everything for s in seen):
        return TRUE
    names = sorted({n for s in seen for n in s.names})
    patterns = sorted({p for s in seen for p in s.patterns})
    return atom(
        Properties(
            tuple((n, TRUE) for n in names), tuple((atom(Pattern(p)), TRUE) for p in patterns), node
        )
    )


def rest_of_items(seen: list[Seen], node: Formula) -> Formula:
    """Each item past those, and not among what is contained, satisfies ``node``."""
    if any(s.everything for s in seen):
        return TRUE
    num_items = max((s.num_items for s in seen), default=0)
    rest = any_of([node, *(s.contains for s in seen)])
    return TRUE if rest.op == "true" else atom(Items((TRUE,) * num_items, rest))


def collect(
    typer: SchemaReader, leaf: Leaf, kind: str, guard: Formula, found: list[Seen], *, own: bool
) -> None:
    """Collect what a schema evaluates of an object or array, and under which condition.

    ``own`` counts the schema's own unevaluated keyword.
    """
    schema = leaf.schema
    if not isinstance(schema, dict) or guard.op == "false":
        return
    if len(found) > 1000:
        raise GrammarTooComplexError(leaf.path, "$ref", "too many schemas apply in one place")
    for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
        if keyword in schema:
            target = typer.documents.refer(leaf, keyword, schema[keyword])
            collect(typer, target, kind, guard, found, own=True)
    if "$ref" in schema and typer.documents.is_old(leaf):
        return
    if kind == "object":
        names = frozenset(schema.get("properties", {}))
        patterns = frozenset(schema.get("patternProperties", {}))
        everything = "additionalProperties" in schema
        if own and "unevaluatedProperties" in schema:
            everything = True
        if names or patterns or everything:
            found.append(Seen(guard, names, patterns, everything))
    else:
        prefix, _ = typer.items(leaf)
        everything = isinstance(schema.get("items"), dict | bool) or (
            "additionalItems" in schema and isinstance(schema.get("items"), list)
        )
        if own and "unevaluatedItems" in schema:
            everything = True
        contains = FALSE
        if "contains" in schema and not typer.documents.is_old(leaf):
            contains = typer.child(leaf, "contains")
        if prefix or everything or contains.op != "false":
            found.append(Seen(guard, frozenset(), frozenset(), everything, len(prefix), contains))

    def within(condition: Formula, *steps: str | int) -> None:
        child = typer.documents.child(leaf, *steps)
        collect(typer, child, kind, all_of([guard, condition]), found, own=True)

    for i in range(len(schema.get("allOf", ()))):
        within(TRUE, "allOf", i)
    for keyword in ("anyOf", "oneOf"):
        for i in range(len(schema.get(keyword, ()))):
            within(typer.typed(typer.child(leaf, keyword, i), kind), keyword, i)
    if "if" in schema:
        condition = typer.typed(typer.child(leaf, "if"), kind)
        within(condition, "if")
        if "then" in schema:
            within(condition, "then")
        if "else" in schema:
            within(negate(condition), "else")
    if kind == "object":
        for keyword in ("dependentSchemas", "dependencies"):
            for name, sub in subschemas(leaf, keyword).items():
                if isinstance(sub, dict):
                    within(atom(Has(name)), keyword, name)
