"""The properties and items that a schema evaluates, for ``unevaluatedProperties`` and
``unevaluatedItems``."""

from __future__ import annotations

import itertools
from typing import Any, Protocol

from ramet.grammars.errors import GrammarTooComplexError
from ramet.grammars.json_schema.schema.atoms import (
    Contains,
    Has,
    Items,
    Pattern,
    Properties,
    TextIs,
)
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
from ramet.grammars.json_schema.solver.value_sets.languages import Languages

_MAX_CONTAINS = 8
_MAX_REGIONS = 256


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


def unevaluated_properties(
    leaf: Leaf, found: list[Seen], node: Formula, languages: Languages
) -> Formula:
    """Each property that no schema evaluates satisfies ``node``.

    Names are grouped by the guards that cover them: of each group either one of its guards holds,
    or all of its properties satisfy ``node``. The formula grows with the names and with the ways in
    which patterns overlap, not with the sets of guards.
    """
    always, sometimes = _by_guard(found)
    if any(s.everything for s in always):
        return TRUE
    certain = [atom(Pattern(p)) for p in sorted({p for s in always for p in s.patterns})]
    known = frozenset(n for s in always for n in s.names)
    names = sorted({n for s in found for n in s.names} - known)
    groups: dict[tuple[Formula, ...], list[str]] = {}
    for name in names:
        if not any(languages.has_text(p, name) for p in certain):
            covering = tuple(
                guard
                for guard, seen in sometimes.items()
                if any(_covers(s, name, languages) for s in seen)
            )
            groups.setdefault(covering, []).append(name)
    parts = [
        any_of([*covering, atom(Properties(tuple((n, node) for n in group), (), TRUE))])
        for covering, group in groups.items()
    ]
    listed = known.union(names)
    patterns = [
        p
        for p in dict.fromkeys(atom(Pattern(p)) for s in found for p in sorted(s.patterns))
        if p not in certain
    ]
    others = all_of([*map(negate, certain), *([negate(atom(TextIs(listed)))] if listed else [])])
    for matched, region in _overlaps(leaf, patterns, others, languages):
        covering = tuple(
            guard
            for guard, seen in sometimes.items()
            if any(
                s.everything or any(atom(Pattern(p)) in matched for p in s.patterns) for s in seen
            )
        )
        if matched:
            rest = Properties((), ((region, node),), TRUE)
        else:
            free = tuple((p, TRUE) for p in [*certain, *patterns])
            rest = Properties(tuple((n, TRUE) for n in sorted(listed)), free, node)
        parts.append(any_of([*covering, atom(rest)]))
    return all_of(parts)


def _by_guard(found: list[Seen]) -> tuple[list[Seen], dict[Formula, list[Seen]]]:
    """What is always evaluated, and what is if a guard holds."""
    always: list[Seen] = []
    sometimes: dict[Formula, list[Seen]] = {}
    for seen in found:
        if seen.guard.op == "true":
            always.append(seen)
        else:
            sometimes.setdefault(seen.guard, []).append(seen)
    return always, sometimes


def _covers(seen: Seen, name: str, languages: Languages) -> bool:
    return (
        seen.everything
        or name in seen.names
        or any(languages.has_text(atom(Pattern(p)), name) for p in seen.patterns)
    )


def _overlaps(
    leaf: Leaf, patterns: list[Formula], others: Formula, languages: Languages
) -> list[tuple[tuple[Formula, ...], Formula]]:
    """The sets of patterns that a name in ``others`` can match together, with those names."""
    regions: list[tuple[tuple[Formula, ...], Formula]] = [((), others)]
    for pattern in patterns:
        divided = []
        for matched, region in regions:
            inner = all_of([region, pattern])
            if not languages.texts(inner).is_empty:
                divided.append(((*matched, pattern), inner))
            outer = all_of([region, negate(pattern)])
            if not matched or not languages.texts(outer).is_empty:
                divided.append((matched, outer))
        regions = divided
        if len(regions) > _MAX_REGIONS:
            raise GrammarTooComplexError(
                f"{leaf.path}/unevaluatedProperties",
                "unevaluatedProperties",
                f"evaluated patterns overlap in more than {_MAX_REGIONS} ways",
            )
    return regions


def unevaluated_items(leaf: Leaf, found: list[Seen], node: Formula) -> Formula:
    """Each item that no schema evaluates satisfies ``node``.

    Items are grouped by the guards that cover their index. Only schemas with ``contains`` are
    looked at in all combinations, as an item may be any of what they contain.
    """
    always, sometimes = _by_guard(found)
    if any(s.everything for s in always):
        return TRUE
    first = max((s.num_items for s in always), default=0)
    node = any_of([node, *(s.contains for s in always)])
    choosing = [g for g, seen in sometimes.items() if any(s.contains.op != "false" for s in seen)]
    # An item that makes its own condition true is evaluated on no other.
    sure = [
        g
        for g in choosing
        if all(s.contains.op == "false" or _holds_by(g, s.contains) for s in sometimes[g])
    ]
    node = any_of([node, *(s.contains for g in sure for s in sometimes[g])])
    choosing = [g for g in choosing if g not in sure]
    if len(choosing) > _MAX_CONTAINS:
        raise GrammarTooComplexError(
            f"{leaf.path}/unevaluatedItems",
            "unevaluatedItems",
            f"more than {_MAX_CONTAINS} subschemas with contains evaluate items on conditions",
        )
    cases = []
    for truth in itertools.product((True, False), repeat=len(choosing)):
        guards = [g if t else negate(g) for g, t in zip(choosing, truth, strict=True)]
        contained = [
            s.contains for g, t in zip(choosing, truth, strict=True) if t for s in sometimes[g]
        ]
        rest = any_of([node, *contained])
        cases.append(all_of([*guards, _items_by_index(sometimes, first, rest)]))
    return any_of(cases)


def _holds_by(condition: Formula, node: Formula) -> bool:
    """Whether one item that satisfies a node is all that a condition on an array requires."""
    found = condition.parts[0] if condition.op == "atom" else None
    return (
        isinstance(found, Contains) and found.node == node and found.low <= 1 and found.high is None
    )


def _items_by_index(sometimes: dict[Formula, list[Seen]], first: int, node: Formula) -> Formula:
    """Each item from ``first`` on satisfies ``node`` or is covered by its index."""
    if node.op == "true":
        return TRUE
    borders = sorted({s.num_items for seen in sometimes.values() for s in seen} | {first})
    parts = []
    for low in [b for b in borders if b >= first]:
        high = next((b for b in borders if b > low), None)
        covering = [
            guard
            for guard, seen in sometimes.items()
            if any(s.everything or (high is not None and s.num_items >= high) for s in seen)
        ]
        if high is None:
            items = Items((TRUE,) * low, node)
        else:
            items = Items((TRUE,) * low + (node,) * (high - low), TRUE)
        parts.append(any_of([*covering, atom(items)]))
    return all_of(parts)


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
