"""Compiles keywords to formulas: a schema's requirements on values of one JSON type.

Keywords that apply to the same value (allOf, anyOf, oneOf, not, if, $ref, dependentSchemas and the
unevaluated ones) are expanded here; only the atoms of ``atoms.py`` remain.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ramet.grammars.errors import ConstraintError
from ramet.grammars.json_schema.schema.atoms import (
    Const,
    Contains,
    Format,
    Has,
    Integer,
    Items,
    Length,
    Pattern,
    Properties,
    Size,
    TextIs,
    TextLength,
    Unique,
)
from ramet.grammars.json_schema.schema.documents import Documents, Leaf, escape
from ramet.grammars.json_schema.schema.formula import (
    FALSE,
    TRUE,
    Formula,
    all_of,
    any_of,
    atom,
    negate,
    one_of,
    replace,
)
from ramet.grammars.json_schema.schema.keyword_values import (
    bounds,
    canonical_values,
    name_list,
    number_parts,
    subschemas,
)
from ramet.grammars.json_schema.schema.keywords import ROLES
from ramet.grammars.json_schema.schema.kinds import OF_TYPE, kinds_of
from ramet.grammars.json_schema.solver.value_sets.languages import Languages
from ramet.grammars.regular.formats import FORMAT_NAMES

from .evaluated import Seen, collect, unevaluated_items, unevaluated_properties
from .value_formulas import const_formula, join_properties, values_formula

_BESIDE_REFERENCES = frozenset(("$ref", "$schema", "$defs", "definitions"))


class Typer:
    """Computes and caches the typed formulas of one compilation."""

    def __init__(
        self, documents: Documents, languages: Languages, *, keep_names: bool = False
    ) -> None:
        """``keep_names`` keeps names that may have any value, as their order matters."""
        self.documents = documents
        self._keep_names = keep_names
        self._languages = languages
        self._known: dict[tuple[Formula, str], Formula] = {}
        self._kinds: dict[Formula, tuple[str, ...]] = {}
        self._open: set[tuple[Leaf, str]] = set()

    def node(self, leaf: Leaf) -> Formula:
        """The node of one subschema; a schema that is a reference alone is what it refers to."""
        if leaf.node is None:
            leaf.node = self._node(leaf)
        return leaf.node

    def _node(self, leaf: Leaf) -> Formula:
        seen = set()
        while isinstance(leaf.schema, dict) and isinstance(leaf.schema.get("$ref"), str):
            says_more = any(k in ROLES and k not in _BESIDE_REFERENCES for k in leaf.schema)
            if says_more and not self.documents.is_old(leaf):
                break
            if leaf in seen:
                raise ConstraintError(leaf.path, "$ref", "the schema refers to itself alone")
            seen.add(leaf)
            leaf = self.documents.refer(leaf, "$ref", leaf.schema["$ref"])
        if leaf.schema is True or leaf.schema == {}:
            return TRUE
        if leaf.schema is False:
            return FALSE
        return leaf.node or atom(leaf)

    def child(self, leaf: Leaf, *steps: str | int) -> Formula:
        """The node of a subschema of ``leaf``."""
        return self.node(self.documents.child(leaf, *steps))

    def typed(self, node: Formula, kind: str) -> Formula:
        """A node's formula for values of type ``kind`` (see ``TYPES``), over typed atoms."""
        op = node.op
        if op == "atom":
            return self._atom(node.parts[0], kind)
        if op in ("true", "false"):
            return node
        key = (node, kind)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = replace(node, lambda a: self._atom(a, kind))
        return known

    def kinds(self, node: Formula) -> tuple[str, ...]:
        """A superset of the types that a node allows; the easiest first."""
        if node.op == "atom":
            value = node.parts[0]
            if isinstance(value, Leaf):
                if value.kinds is None:
                    value.kinds = kinds_of(node)
                return value.kinds
        known = self._kinds.get(node)
        if known is None:
            known = self._kinds[node] = kinds_of(node)
        return known

    def _atom(self, value: Hashable, kind: str) -> Formula:
        if isinstance(value, Const):
            return const_formula(value.value, kind)
        assert isinstance(value, Leaf)
        known = value.typed.get(kind)
        if known is None:
            key = (value, kind)
            if key in self._open:
                raise ConstraintError(
                    value.path, "$ref", "the schema refers to itself for the same value"
                )
            self._open.add(key)
            try:
                known = self._leaf(value, kind)
            finally:
                self._open.discard(key)
            value.typed[kind] = known
        return known

    # -- one schema -------------------------------------------------------------------------

    def _leaf(self, leaf: Leaf, kind: str) -> Formula:
        schema = leaf.schema
        if schema is True:
            return TRUE
        if schema is False:
            return FALSE
        documents = self.documents
        parts: list[Formula] = []
        if leaf.content is None:
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
                if keyword in schema:
                    target = documents.refer(leaf, keyword, schema[keyword])
                    parts.append(self.typed(self.node(target), kind))
            if "$ref" in schema and documents.is_old(leaf):
                return parts[0]
        if "type" in schema:
            allowed = self._type(leaf, schema["type"], kind)
            if allowed.op == "false":
                return FALSE
            parts.append(allowed)
        if "const" in schema:
            parts.append(values_formula(canonical_values(leaf, "const", [schema["const"]]), kind))
        if "enum" in schema:
            if not isinstance(schema["enum"], list):
                raise ConstraintError(f"{leaf.path}/enum", "enum", "enum must be an array")
            parts.append(values_formula(canonical_values(leaf, "enum", schema["enum"]), kind))
        if leaf.content is None:
            parts.extend(self._in_place(leaf, kind))
        if kind == "number":
            parts.extend(number_parts(leaf))
        elif kind == "string":
            parts.extend(self._string_parts(leaf))
        elif kind == "object":
            parts.extend(self._object_parts(leaf))
        elif kind == "array":
            parts.extend(self._array_parts(leaf))
        return join_properties(all_of(parts)) if kind == "object" else all_of(parts)

    def _type(self, leaf: Leaf, types: Any, kind: str) -> Formula:
        path = f"{leaf.path}/type"
        names = types if isinstance(types, list) else [types]
        found = []
        for name in names:
            if isinstance(name, dict | bool):
                raise ConstraintError(path, "type", "a type must be a name, not a schema")
            if name == "any" and self.documents.is_old(leaf):
                return TRUE
            if not isinstance(name, str) or name not in OF_TYPE:
                raise ConstraintError(path, "type", f"{name!r} is not a type")
            if kind in OF_TYPE[name]:
                found.append(atom(Integer()) if name == "integer" else TRUE)
        return any_of(found)

    def _in_place(self, leaf: Leaf, kind: str) -> list[Formula]:
        schema = leaf.schema
        parts: list[Formula] = []
        for keyword, combine in (("allOf", all_of), ("anyOf", any_of), ("oneOf", one_of)):
            if keyword in schema:
                if not isinstance(schema[keyword], list) or not schema[keyword]:
                    raise ConstraintError(
                        f"{leaf.path}/{keyword}", keyword, f"{keyword} must be a non-empty array"
                    )
                parts.append(
                    combine(
                        [
                            self.typed(self.child(leaf, keyword, i), kind)
                            for i in range(len(schema[keyword]))
                        ]
                    )
                )
        if "not" in schema:
            parts.append(negate(self.typed(self.child(leaf, "not"), kind)))
        if "if" in schema and ("then" in schema or "else" in schema):
            condition = self.typed(self.child(leaf, "if"), kind)
            if "then" in schema:
                then = self.typed(self.child(leaf, "then"), kind)
                parts.append(any_of([negate(condition), then]))
            if "else" in schema:
                parts.append(any_of([condition, self.typed(self.child(leaf, "else"), kind)]))
        return parts

    # -- strings ----------------------------------------------------------------------------

    def _string_parts(self, leaf: Leaf) -> list[Formula]:
        schema = leaf.schema
        parts: list[Formula] = []
        low, high = bounds(leaf, "minLength", "maxLength")
        if high is not None and low > high:
            return [FALSE]
        if (low, high) != (0, None):
            parts.append(atom(TextLength(low, high)))
        if "pattern" in schema:
            parts.append(self._pattern(schema["pattern"], f"{leaf.path}/pattern", "pattern"))
        name = schema.get("format")
        if isinstance(name, str) and name in FORMAT_NAMES:
            members = self._languages.decoded.get(name)
            parts.append(atom(Format(name) if members is None else TextIs(members)))
        return parts

    def _pattern(self, pattern: object, path: str, keyword: str) -> Formula:
        if not isinstance(pattern, str):
            raise ConstraintError(path, keyword, "a pattern must be a string")
        try:
            counted = self._languages.counted_pattern(pattern)
            if counted is not None:
                _, low, high = counted
                self._languages.pattern(Pattern(pattern, unbounded=True))
                return all_of([atom(Pattern(pattern, unbounded=True)), atom(TextLength(low, high))])
            members = self._languages.few_members(pattern)
        except ConstraintError as error:
            where = f" ({error.path})" if error.path else ""
            raise type(error)(path, keyword, error.reason + where) from None
        return atom(Pattern(pattern) if members is None else TextIs(members))

    # -- objects ----------------------------------------------------------------------------

    def _object_parts(self, leaf: Leaf) -> list[Formula]:
        schema = leaf.schema
        parts: list[Formula] = []
        names = tuple(
            (n, self.child(leaf, "properties", n)) for n in subschemas(leaf, "properties")
        )
        patterns = tuple(
            (
                self._pattern(p, f"{leaf.path}/patternProperties/{escape(p)}", "patternProperties"),
                self.child(leaf, "patternProperties", p),
            )
            for p in subschemas(leaf, "patternProperties")
        )
        rest = TRUE
        if "additionalProperties" in schema:
            rest = self.child(leaf, "additionalProperties")
        if not self._keep_names:
            names = tuple((n, f) for n, f in names if f.op != "true" or rest.op != "true")
        if names or patterns or rest.op != "true":
            parts.append(atom(Properties(names, patterns, rest)))
        if "propertyNames" in schema:
            allowed = self.typed(self.child(leaf, "propertyNames"), "string")
            if allowed.op == "false":
                parts.append(atom(Size(0, 0)))
            elif allowed.op != "true":
                parts.append(atom(Properties((), ((negate(allowed), FALSE),), TRUE)))
        parts.extend(atom(Has(n)) for n in name_list(leaf, "required"))
        low, high = bounds(leaf, "minProperties", "maxProperties")
        if (low, high) != (0, None):
            parts.append(atom(Size(low, high)))
        for keyword in ("dependentRequired", "dependencies"):
            for name, needed in subschemas(leaf, keyword).items():
                if isinstance(needed, str):
                    needed = [needed]
                if isinstance(needed, list):
                    parts.append(
                        any_of([negate(atom(Has(name))), all_of(atom(Has(n)) for n in needed)])
                    )
        for keyword in ("dependentSchemas", "dependencies"):
            for name, sub in subschemas(leaf, keyword).items():
                if isinstance(sub, dict | bool):
                    then = self.typed(self.child(leaf, keyword, name), "object")
                    parts.append(any_of([negate(atom(Has(name))), then]))
        if "unevaluatedProperties" in schema:
            node = self.child(leaf, "unevaluatedProperties")
            if node.op != "true":
                parts.append(self._unevaluated_properties(leaf, node))
        return parts

    def _unevaluated_properties(self, leaf: Leaf, node: Formula) -> Formula:
        found: list[Seen] = []
        collect(self, leaf, "object", TRUE, found, own=False)
        return unevaluated_properties(leaf, found, node, self._languages)

    # -- arrays -----------------------------------------------------------------------------

    def _array_parts(self, leaf: Leaf) -> list[Formula]:
        schema = leaf.schema
        parts: list[Formula] = []
        prefix, rest = self.items(leaf)
        while prefix and rest == prefix[-1]:
            prefix = prefix[:-1]
        if prefix or rest.op != "true":
            parts.append(atom(Items(prefix, rest)))
        low, high = bounds(leaf, "minItems", "maxItems")
        if (low, high) != (0, None):
            parts.append(atom(Length(low, high)))
        if "contains" in schema:
            at_least, at_most = bounds(leaf, "minContains", "maxContains", default_low=1)
            if (at_least, at_most) != (0, None):
                parts.append(atom(Contains(self.child(leaf, "contains"), at_least, at_most)))
        if schema.get("uniqueItems") is True:
            parts.append(atom(Unique()))
        if "unevaluatedItems" in schema:
            node = self.child(leaf, "unevaluatedItems")
            if node.op != "true":
                found: list[Seen] = []
                collect(self, leaf, "array", TRUE, found, own=False)
                parts.append(unevaluated_items(leaf, found, node))
        return parts

    def items(self, leaf: Leaf) -> tuple[tuple[Formula, ...], Formula]:
        """The nodes of the first items, and of all others."""
        schema = leaf.schema
        listed = "prefixItems" if "prefixItems" in schema else "items"
        prefix: tuple[Formula, ...] = ()
        rest = TRUE
        if isinstance(schema.get(listed), list):
            prefix = tuple(self.child(leaf, listed, i) for i in range(len(schema[listed])))
        if isinstance(schema.get("items"), list) and listed == "items":
            if "additionalItems" in schema:
                rest = self.child(leaf, "additionalItems")
        elif isinstance(schema.get("items"), dict | bool):
            rest = self.child(leaf, "items")
        return prefix, rest
