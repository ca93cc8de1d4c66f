"""A schema document and the documents it refers to: where a subschema is, and what it refers to.

References resolve as RFC 3986 and JSON Schema (draft 2020-12, with the older drafts' keywords)
say: by ``$id``, ``$anchor``, ``$dynamicAnchor``, JSON pointer. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.limits import CompileLimits

from .keywords import check_keywords

_ROOT = "http://ramet.invalid/schema"
"""The base of a schema that has none of its own (RFC 6761: nobody can own the name)."""

_SUBSCHEMA = frozenset(
    [
        "additionalProperties",
        "additionalItems",
        "propertyNames",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contentSchema",
        "items",
    ]
)
_LIST_OF_SUBSCHEMAS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_MAP_OF_SUBSCHEMAS = frozenset(
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"]
)
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-05", "draft-06", "draft-07")


@dataclass(frozen=True, eq=False, slots=True)
class Leaf:
    """One subschema at one place: a node's atom.

    Attributes:
        schema: a dict or a bool.
        resource: the URI of the schema resource that it is in.
        path: a JSON pointer into the document, for errors.
        scope: the resources entered on the way, outermost first; empty where nothing dynamic is
            ever asked for.
    """

    schema: Any
    resource: str
    path: str
    scope: tuple[str, ...] = ()


class _Resource:
    """A part of a document with its own base URI."""

    def __init__(self, schema: Any, path: str, *, old: bool) -> None:
        self.schema = schema
        self.path = path
        self.old = old
        self.anchors: dict[str, tuple[Any, str]] = {}
        self.dynamic: dict[str, tuple[Any, str]] = {}


class Documents:
    """All schema resources within reach, by URI."""

    def __init__(self, schema: Any, documents: Mapping[str, Any], limits: CompileLimits) -> None:
        self._limits = limits
        self._resources: dict[str, _Resource] = {}
        self._num_nodes = 0
        self._leaves: dict[object, Leaf] = {}
        self._is_dynamic = False
        old = _is_old(schema, False)
        for uri, document in documents.items():
            self._index(document, urldefrag(uri)[0], "", _is_old(document, old), depth=0, root=True)
        self._index(schema, _ROOT, "", old, depth=0, root=True)
        base = self._base_of(schema, _ROOT, old)
        self.root = self.leaf(schema, base, "", self._enter((), base))

    # -- indexing ---------------------------------------------------------------------------

    def _index(
        self, schema: Any, base: str, path: str, old: bool, *, depth: int, root: bool = False
    ) -> None:
        self._num_nodes += 1
        if self._num_nodes > self._limits.max_schema_nodes:
            raise GrammarTooComplexError(
                path, "", f"there are more than {self._limits.max_schema_nodes} subschemas"
            )
        if depth > self._limits.max_depth:
            raise GrammarTooComplexError(
                path, "", f"subschemas nest deeper than {self._limits.max_depth}"
            )
        if root:
            self._resources[base] = _Resource(schema, path, old=old)
        if not isinstance(schema, dict):
            return
        old = _is_old(schema, old)
        own_base = self._base_of(schema, base, old)
        if own_base != base:
            base = own_base
            if base not in self._resources or root:
                self._resources[base] = _Resource(schema, path, old=old)
        resource = self._resources[base]
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = schema.get(keyword)
            if isinstance(name, str):
                resource.anchors[name] = (schema, path)
                if keyword == "$dynamicAnchor":
                    resource.dynamic[name] = (schema, path)
                    self._is_dynamic = True
        if schema.get("$recursiveAnchor") is True:
            resource.dynamic[""] = (schema, path)
            self._is_dynamic = True
        identifier = schema.get("$id", schema.get("id") if old else None)
        if old and isinstance(identifier, str) and identifier.startswith("#") and identifier != "#":
            resource.anchors[identifier[1:]] = (schema, path)
        for key, value in schema.items():
            if key in _SUBSCHEMA and isinstance(value, dict):
                self._index(value, base, f"{path}/{key}", old, depth=depth + 1)
            elif key in _LIST_OF_SUBSCHEMAS and isinstance(value, list):
                for i, item in enumerate(value):
                    self._index(item, base, f"{path}/{key}/{i}", old, depth=depth + 1)
            elif key in _MAP_OF_SUBSCHEMAS and isinstance(value, dict):
                for name, item in value.items():
                    self._index(
                        item, base, f"{path}/{key}/{escape(str(name))}", old, depth=depth + 1
                    )

    def _base_of(self, schema: Any, base: str, old: bool = False) -> str:
        if not isinstance(schema, dict):
            return base
        identifier = schema.get("$id")
        if identifier is None and old:
            identifier = schema.get("id")
        if not isinstance(identifier, str) or identifier.startswith("#"):
            return base
        if old and "$ref" in schema:
            return base
        try:
            return urldefrag(_join(base, identifier))[0]
        except ValueError:
            return base

    # -- looking up -------------------------------------------------------------------------

    def leaf(self, schema: Any, resource: str, path: str, scope: tuple[str, ...]) -> Leaf:
        """The one leaf for a subschema. Small ones are the same wherever they are."""
        if isinstance(schema, bool):
            key: object = schema
        elif not isinstance(schema, dict):
            raise ConstraintError(path, "", "a schema must be an object or a boolean")
        else:
            key = _content(schema) or (id(schema), resource, scope)
        known = self._leaves.get(key)
        if known is None:
            if isinstance(schema, dict):
                check_keywords(schema, path)
            known = self._leaves[key] = Leaf(schema, resource, path, scope)
        return known

    def child(self, leaf: Leaf, *steps: str | int) -> Leaf:
        """The leaf of a subschema of this leaf."""
        schema = leaf.schema
        path = leaf.path
        for step in steps:
            schema = schema[step]
            path = f"{path}/{escape(str(step))}"
        base = self._base_of(schema, leaf.resource, self.is_old(leaf))
        scope = leaf.scope if base == leaf.resource else self._enter(leaf.scope, base)
        return self.leaf(schema, base, path, scope)

    def is_old(self, leaf: Leaf) -> bool:
        """Whether the leaf is of draft 7 or before: ``$ref`` hides what is beside it."""
        return self._resources[leaf.resource].old

    def _enter(self, scope: tuple[str, ...], resource: str) -> tuple[str, ...]:
        if not self._is_dynamic or resource in scope:
            return scope
        return (*scope, resource)

    def refer(self, leaf: Leaf, keyword: str, reference: Any) -> Leaf:
        """What ``$ref``, ``$dynamicRef`` or ``$recursiveRef`` of a leaf names."""
        where = f"{leaf.path}/{keyword}"
        if not isinstance(reference, str):
            raise ConstraintError(where, keyword, "a reference must be a string")
        try:
            uri, fragment = urldefrag(_join(leaf.resource, reference))
        except ValueError:
            raise ConstraintError(where, keyword, f"{reference!r} is no URI reference") from None
        resource = self._resources.get(uri)
        if resource is None:
            raise ConstraintError(
                where, keyword, f"{reference!r} names no document that was given; none is fetched"
            )
        fragment = unquote(fragment)
        scope = self._enter(leaf.scope, uri)
        if keyword == "$recursiveRef" or (
            keyword == "$dynamicRef" and fragment in resource.dynamic
        ):
            name = "" if keyword == "$recursiveRef" else fragment
            if name in resource.dynamic:
                for outer in leaf.scope:
                    found = self._resources[outer].dynamic.get(name)
                    if found is not None:
                        return self.leaf(found[0], outer, found[1], self._enter(leaf.scope, outer))
        if fragment and not fragment.startswith("/"):
            if fragment not in resource.anchors:
                raise ConstraintError(where, keyword, f"{reference!r} names no anchor")
            schema, path = resource.anchors[fragment]
            return self.leaf(schema, uri, path, scope)
        schema, path, base = resource.schema, resource.path, uri
        old = resource.old
        for step in fragment.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and step in schema:
                schema = schema[step]
            elif isinstance(schema, list) and step.isdigit() and int(step) < len(schema):
                schema = schema[int(step)]
            else:
                raise ConstraintError(where, keyword, f"{reference!r} points to nothing")
            path = f"{path}/{escape(step)}"
            if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
                inner = self._base_of(schema, base, old)
                if inner in self._resources:
                    base = inner
                    scope = self._enter(scope, base)
        if not isinstance(schema, dict | bool):
            raise ConstraintError(where, keyword, f"{reference!r} points to no schema")
        return self.leaf(schema, base, path, scope)


def escape(step: str) -> str:
    """A step of a JSON pointer (RFC 6901)."""
    return step.replace("~", "~0").replace("/", "~1")


def _join(base: str, reference: str) -> str:
    """A reference against a base, also where the base's scheme has no hierarchy (a URN)."""
    return base + reference if reference.startswith("#") else urljoin(base, reference)


def _is_old(schema: Any, inherited: bool) -> bool:
    if isinstance(schema, dict):
        dialect = schema.get("$schema")
        if isinstance(dialect, str):
            return any(draft in dialect for draft in _OLD_DRAFTS)
    return inherited


def _content(schema: dict[str, Any]) -> object | None:
    """A key for a small schema without subschemas, or None."""
    if len(schema) > 6:
        return None
    items = []
    for key, value in schema.items():
        if key in ("$ref", "$dynamicRef", "$recursiveRef", "$id", "id"):
            return None
        if isinstance(value, dict):
            return None
        if isinstance(value, list):
            if len(value) > 8 or any(isinstance(v, dict | list) for v in value):
                return None
            value = tuple((type(v), v) for v in value)
        elif not isinstance(value, str | int | float | None):
            return None
        items.append((key, type(value), value))
    return frozenset(items)
