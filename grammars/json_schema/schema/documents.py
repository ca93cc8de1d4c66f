"""A schema document and the documents it refers to: subschemas, resources and references.

References resolve as RFC 3986 and the schema's dialect say: by ``$id``, ``$anchor``,
``$dynamicAnchor``, JSON pointer. Nothing is ever fetched.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.limits import CompileLimits

from .dialects.choose import default_dialect, dialect_of
from .dialects.dialect import Dialect
from .formula import Formula
from .keywords import (
    ASSERTION,
    IDENTITY,
    REFERENCE,
    ROLES,
    SUBSCHEMA,
    SUBSCHEMA_LIST,
    SUBSCHEMA_MAP,
    check_keywords,
)

_ROOT = "http://ramet.invalid/schema"
"""The base of a schema that has none of its own (RFC 6761: nobody can own the name)."""

_IDENTITIES = frozenset(name for name, role in ROLES.items() if role == IDENTITY)
_NESTED, _SCHEMA = (dict, list), (dict, bool)
_SCALARS = frozenset((str, int, float, bool, type(None)))


class Leaf:
    """One subschema at one place: a node's atom. Equal to itself alone.

    A schema without subschemas means the same in every place, so it is one leaf in all schemas of
    a compiler, with all cached results.

    Attributes:
        schema: a dict or a bool.
        resource: the URI of the schema resource that it is in.
        path: a JSON pointer into the document, for errors.
        scope: the resources entered on the way, outermost first; empty where no dynamic reference
            needs it.
        content: its keywords, if none has a subschema; None otherwise.
        node: the node that stands for it, once it is known.
        kinds: the types that it may allow, likewise.
        typed: by type, its formula for values of that type.
        parts: the parts of its values, for each way to write numbers.
        is_settled: it is checked, and all its parts are computed.
    """

    __slots__ = (
        "content", "is_settled", "kinds", "node", "parts", "path", "resource", "schema", "scope",
        "typed",
    )  # fmt: skip

    def __init__(
        self,
        schema: Any,
        resource: str,
        path: str,
        scope: tuple[str, ...] = (),
        content: Hashable = None,
    ) -> None:
        self.schema = schema
        self.resource = resource
        self.path = path
        self.scope = scope
        self.content = content
        self.node: Formula | None = None
        self.kinds: tuple[str, ...] | None = None
        self.typed: dict[str, Formula] = {}
        self.parts: dict[Hashable, Any] = {}
        self.is_settled = False


class _Resource:
    """A part of a document with its own base URI."""

    def __init__(self, schema: Any, path: str, dialect: Dialect) -> None:
        self.schema = schema
        self.path = path
        self.dialect = dialect
        self.anchors: dict[str, tuple[Any, str]] = {}
        self.dynamic: dict[str, tuple[Any, str]] = {}


class Documents:
    """All schema resources within reach, by URI."""

    def __init__(
        self,
        schema: Any,
        documents: Mapping[str, Any],
        limits: CompileLimits,
        shared: Mapping[Hashable, Leaf] | None = None,
        annotations: Collection[str] = (),
        dialect: str = "auto",
    ) -> None:
        """``shared`` has leaves of other schemas, by content; ``annotations`` are keywords that are
        ignored here; ``dialect`` is that of documents that don't name theirs."""
        self._limits = limits
        self._annotations = frozenset(annotations)
        self._documents = documents
        self._dialects: dict[Dialect, Dialect] = {}
        self._shared = {} if shared is None else shared
        self._resources: dict[str, _Resource] = {}
        self._num_nodes = 0
        self._leaves: dict[Hashable, Leaf] = {}
        self._contents: dict[int, Hashable] = {}
        self._referred: dict[Hashable, Leaf] = {}
        self._numbers: dict[Hashable, int] = {}
        self._is_dynamic = False
        own = self._dialect_of(schema, default_dialect(dialect, schema))
        base = self._base_of(schema, _ROOT, own)
        for uri, document in documents.items():
            place = urldefrag(_join(base, uri))[0]
            self._index(document, place, "", self._dialect_of(document, own), 0)
        self._index(schema, _ROOT, "", own, 0)
        self.root = self.leaf(schema, base, "", self._enter((), base))

    # -- indexing ---------------------------------------------------------------------------

    def _dialect_of(self, schema: Any, default: Dialect) -> Dialect:
        """The dialect of a resource, without the keywords that are ignored here."""
        found = dialect_of(schema, default, self._documents)
        is_done = not self._annotations or found in self._dialects.values()
        if is_done or found.asserts_formats:
            return found
        return self._dialects.setdefault(found, found.without(self._annotations))

    def _index(self, schema: Any, base: str, path: str, dialect: Dialect, depth: int) -> None:
        """Indexes the resources and anchors in a schema; the document itself is at depth 0."""
        self._num_nodes += 1
        if self._num_nodes > self._limits.max_schema_nodes:
            raise GrammarTooComplexError(
                path, "", f"there are more than {self._limits.max_schema_nodes} subschemas"
            )
        if depth > self._limits.max_depth:
            raise GrammarTooComplexError(
                path, "", f"subschemas nest deeper than {self._limits.max_depth}"
            )
        if depth == 0:
            self._resources[base] = _Resource(schema, path, dialect)
        if not isinstance(schema, dict):
            return
        if not _IDENTITIES.isdisjoint(schema):
            base, dialect = self._index_names(schema, base, path, dialect, depth)
        depth += 1
        roles = dialect.roles
        for key, value in schema.items():
            role = roles.get(key)
            if not role or not isinstance(value, _NESTED):  # An annotation, or an assertion.
                continue
            if isinstance(value, list):
                if role == SUBSCHEMA_LIST or key == "items":
                    for i, item in enumerate(value):
                        self._index(item, base, f"{path}/{key}/{i}", dialect, depth)
            elif role == SUBSCHEMA:
                self._index(value, base, f"{path}/{key}", dialect, depth)
            elif role == SUBSCHEMA_MAP:
                for name, item in value.items():
                    where = f"{path}/{key}/{escape(str(name))}"
                    self._index(item, base, where, dialect, depth)

    def _index_names(
        self, schema: dict[str, Any], base: str, path: str, dialect: Dialect, depth: int
    ) -> tuple[str, Dialect]:
        """Records a schema's own identifiers.

        Returns:
            The base and the dialect inside it.
        """
        dialect = self._dialect_of(schema, dialect)
        own_base = self._base_of(schema, base, dialect)
        if own_base != base:
            base = own_base
            if base not in self._resources or depth == 0:
                self._resources[base] = _Resource(schema, path, dialect)
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
        identifier = dialect.identifier_of(schema)
        if dialect.reference_stands_alone and identifier and identifier[0] == "#" != identifier:
            resource.anchors[identifier[1:]] = (schema, path)
        return base, dialect

    def _base_of(self, schema: Any, base: str, dialect: Dialect) -> str:
        if not isinstance(schema, dict):
            return base
        identifier = dialect.identifier_of(schema)
        if identifier is None or identifier.startswith("#"):
            return base
        if dialect.reference_stands_alone and "$ref" in schema:
            return base
        try:
            return urldefrag(_join(base, identifier))[0]
        except ValueError:
            return base

    # -- looking up -------------------------------------------------------------------------

    def leaf(self, schema: Any, resource: str, path: str, scope: tuple[str, ...]) -> Leaf:
        """The one leaf for a subschema. Equal ones in one place are the same."""
        return self._find(schema, resource, scope) or self._make(schema, resource, path, scope)

    def child(self, leaf: Leaf, *steps: str | int) -> Leaf:
        """The leaf of a subschema of this leaf."""
        schema = leaf.schema
        for step in steps:
            schema = schema[step]
        base, scope = leaf.resource, leaf.scope
        if isinstance(schema, dict) and ("$id" in schema or "id" in schema):
            base = self._base_of(schema, base, self._resources[base].dialect)
            if base != leaf.resource:
                scope = self._enter(scope, base)
        known = self._find(schema, base, scope)
        if known is None:
            path = "/".join((leaf.path, *(escape(str(step)) for step in steps)))
            known = self._make(schema, base, path, scope)
        return known

    def _find(self, schema: Any, resource: str, scope: tuple[str, ...]) -> Leaf | None:
        content = self._content_of(schema, self._resources[resource].dialect)
        if isinstance(content, int):
            return self._leaves.get((content, resource, scope))
        return self._leaves.get(content) or self._shared.get(content)

    def _make(self, schema: Any, resource: str, path: str, scope: tuple[str, ...]) -> Leaf:
        if not isinstance(schema, _SCHEMA):
            raise ConstraintError(path, "", "a schema must be an object or a boolean")
        dialect = self._resources[resource].dialect
        content = self._content_of(schema, dialect)
        is_local = isinstance(content, int)
        if isinstance(schema, dict):
            roles = dialect.roles
            if not is_local:
                schema = {k: v for k, v in schema.items() if roles.get(k) == ASSERTION}
            elif not dialect.is_closed and any(k in ROLES and k not in roles for k in schema):
                schema = {k: v for k, v in schema.items() if k in roles or k not in ROLES}
            if dialect.rewrite is not None:
                schema = dialect.rewrite(schema, path)
            check_keywords(schema, path)
        leaf = Leaf(schema, resource, path, scope, None if is_local else content)
        self._leaves[(content, resource, scope) if is_local else content] = leaf
        return leaf

    def _content_of(self, schema: Any, dialect: Dialect) -> Hashable:
        """Identifies a schema's meaning, annotations aside: a number unique to it among this
        document's different schemas, or, without subschemas, a key that is not a number."""
        if not isinstance(schema, dict):
            return ("schema", schema) if isinstance(schema, bool) else -1
        content = self._contents.get(id(schema))
        if content is None:
            items: list[Hashable] = []
            is_plain = dialect.is_shared
            roles = dialect.roles
            for keyword, value in schema.items():
                role = roles.get(keyword)
                if role is None or keyword == "contentSchema":
                    continue
                is_plain = is_plain and role == ASSERTION
                item = self._part_of(role, value, dialect)
                if item is None:
                    items, is_plain = [id(schema)], False
                    break
                items.append((keyword, item))
            key = frozenset(items)
            content = key if is_plain else self._numbers.setdefault(key, len(self._numbers))
            self._contents[id(schema)] = content
        return content

    def _part_of(self, role: int, value: Any, dialect: Dialect) -> Hashable | None:
        """A keyword's value in canonical form; None if it isn't compared."""
        if role == ASSERTION:
            if isinstance(value, list):
                if "any" in value or not _SCALARS.issuperset(map(type, value)):
                    return None
                return tuple([(type(v), v) for v in value])
            return (type(value), value) if type(value) in _SCALARS and value != "any" else None
        if role == REFERENCE:
            return value if isinstance(value, str) else None
        if role == IDENTITY:
            return None
        if isinstance(value, dict) and role == SUBSCHEMA_MAP:
            if not all(isinstance(v, _SCHEMA) for v in value.values()):
                return None
            return tuple([(name, self._content_of(v, dialect)) for name, v in value.items()])
        if isinstance(value, list):
            return tuple([self._content_of(v, dialect) for v in value])
        return self._content_of(value, dialect)

    def plain_leaves(self) -> Iterator[Leaf]:
        """The leaves that were made here and mean the same in every document."""
        return (leaf for leaf in self._leaves.values() if leaf.content is not None)

    def is_old(self, leaf: Leaf) -> bool:
        """Whether the leaf is of draft 7 or before: ``$ref`` hides its sibling keywords."""
        return self._resources[leaf.resource].dialect.reference_stands_alone

    def _enter(self, scope: tuple[str, ...], resource: str) -> tuple[str, ...]:
        if not self._is_dynamic or resource in scope:
            return scope
        return (*scope, resource)

    def refer(self, leaf: Leaf, keyword: str, reference: Any) -> Leaf:
        """What ``$ref``, ``$dynamicRef`` or ``$recursiveRef`` of a leaf names."""
        if not isinstance(reference, str):
            where = f"{leaf.path}/{keyword}"
            raise ConstraintError(where, keyword, "a reference must be a string")
        key = (leaf.resource, leaf.scope, keyword, reference)
        known = self._referred.get(key)
        if known is None:
            known = self._referred[key] = self._refer(leaf, keyword, reference)
        return known

    def _refer(self, leaf: Leaf, keyword: str, reference: str) -> Leaf:
        where = f"{leaf.path}/{keyword}"
        try:
            uri, fragment = urldefrag(_join(leaf.resource, reference))
        except ValueError:
            raise ConstraintError(where, keyword, f"{reference!r} is not a URI reference") from None
        resource = self._resources.get(uri)
        if resource is None:
            raise ConstraintError(
                where, keyword, f"{reference!r} names no document that was given; none is fetched"
            )
        fragment = unquote(fragment)
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
            return self.leaf(schema, uri, path, self._enter(leaf.scope, uri))
        schema, path, base = resource.schema, resource.path, uri
        for step in fragment.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(schema, dict) and step in schema:
                schema = schema[step]
            elif isinstance(schema, list) and step.isdigit() and int(step) < len(schema):
                schema = schema[int(step)]
            else:
                raise ConstraintError(where, keyword, f"{reference!r} points to nothing")
            path = f"{path}/{escape(step)}"
            if isinstance(schema, dict) and ("$id" in schema or "id" in schema):
                inner = self._base_of(schema, base, self._resources[base].dialect)
                if inner in self._resources:
                    base = inner
        if not isinstance(schema, _SCHEMA):
            raise ConstraintError(where, keyword, f"{reference!r} points to no schema")
        # A pointer enters the resource that it ends in, none of those on its way.
        return self.leaf(schema, base, path, self._enter(leaf.scope, base))


def escape(step: str) -> str:
    """A step of a JSON pointer (RFC 6901)."""
    return step.replace("~", "~0").replace("/", "~1")


def _join(base: str, reference: str) -> str:
    """A reference against a base, also where the base's scheme has no hierarchy (a URN)."""
    return base + reference if reference.startswith("#") else urljoin(base, reference)
