"""Chooses a document's dialect: by its ``$schema``, its form, or the caller's option."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urldefrag

from ramet.grammars.errors import ConstraintError

from .dialect import Dialect
from .drafts import ANY_DRAFT, DRAFT_3, DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020
from .jtd import JTD, is_jtd
from .openapi import OPENAPI_3_0, OPENAPI_3_1

DIALECTS = {
    dialect.name: dialect
    for dialect in (
        DRAFT_3, DRAFT_4, DRAFT_6, DRAFT_7, DRAFT_2019, DRAFT_2020, OPENAPI_3_0, OPENAPI_3_1, JTD
    )
}  # fmt: skip
"""By the names of ``JsonSchema.dialect``, ``auto`` aside."""

_DRAFTS = {
    "draft-03": DRAFT_3,
    "draft-04": DRAFT_4,
    "draft-05": DRAFT_4,
    "draft-06": DRAFT_6,
    "draft-07": DRAFT_7,
    "draft/2019-09": DRAFT_2019,
    "draft/2020-12": DRAFT_2020,
    "oas/3.0": OPENAPI_3_0,
    "oas/3.1": OPENAPI_3_1,
}
_NAMED = re.compile(
    r"^https?://(?:json-schema\.org|spec\.openapis\.org)/(draft-0[3-7]|draft/20\d\d-\d\d|oas/3\.[01])\b"
)
_VOCABULARY = re.compile(r"^https://json-schema\.org/draft/20\d\d-\d\d/vocab/([a-z-]+)$")

_VALIDATION = """
    type const enum multipleOf maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength
    pattern maxItems minItems uniqueItems maxContains minContains maxProperties minProperties
    required dependentRequired
"""
_APPLICATOR = """
    prefixItems items additionalItems contains additionalProperties properties patternProperties
    dependentSchemas propertyNames if then else allOf anyOf oneOf not
"""
_UNEVALUATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_KEYWORDS = {
    "core": frozenset[str](),
    "applicator": frozenset(_APPLICATOR.split()),
    "validation": frozenset(_VALIDATION.split()),
    "unevaluated": _UNEVALUATED,
    "meta-data": frozenset[str](),
    "format": frozenset(("format",)),
    "format-annotation": frozenset(("format",)),
    "format-assertion": frozenset(("format",)),
    "content": frozenset[str](),
}
"""By vocabulary of drafts 2019-09 and 2020-12."""


def default_dialect(name: str, schema: Any) -> Dialect:
    """The dialect of documents that don't name one; ``name`` is as in ``JsonSchema.dialect``."""
    if name == "auto":
        return JTD if is_jtd(schema) else ANY_DRAFT
    return DIALECTS[name]


def dialect_of(schema: Any, default: Dialect, documents: Mapping[str, Any]) -> Dialect:
    """The dialect of a schema resource; meta-schemas are looked up in ``documents``."""
    if not isinstance(schema, dict):
        return default
    named = schema.get("$schema")
    if isinstance(named, str):
        return _by_uri(named, documents, frozenset()) or ANY_DRAFT
    version = schema.get("openapi")
    if isinstance(version, str) and "info" in schema:
        return OPENAPI_3_0 if version.startswith("3.0") else OPENAPI_3_1
    return default


def _by_uri(uri: str, documents: Mapping[str, Any], seen: frozenset[str]) -> Dialect | None:
    uri = urldefrag(uri)[0]
    found = _NAMED.match(uri)
    if found and found.group(1) in _DRAFTS:
        return _DRAFTS[found.group(1)]
    meta = documents.get(uri, documents.get(uri + "#"))
    if not isinstance(meta, dict) or uri in seen:
        return None
    base = None
    if isinstance(meta.get("$schema"), str):
        base = _by_uri(meta["$schema"], documents, seen | {uri})
    vocabularies = meta.get("$vocabulary")
    if base not in (DRAFT_2019, DRAFT_2020) or not isinstance(vocabularies, dict):
        return base
    return _narrowed(base, uri, vocabularies)


def _narrowed(base: Dialect, uri: str, vocabularies: dict[str, Any]) -> Dialect:
    """A draft with the vocabularies of a meta-schema alone."""
    names = set()
    for vocabulary, is_required in vocabularies.items():
        found = _VOCABULARY.match(vocabulary)
        if found and found.group(1) in _KEYWORDS:
            names.add(found.group(1))
        elif is_required:
            raise ConstraintError(
                "/$schema",
                "$schema",
                f"{uri} requires the vocabulary {vocabulary}, which is unknown",
            )
    kept = frozenset[str]().union(*(_KEYWORDS[name] for name in names))
    if base is DRAFT_2019 and "applicator" in names:
        kept |= _UNEVALUATED
    narrowed = base.without(frozenset[str]().union(*_KEYWORDS.values()) - kept)
    return dataclasses.replace(narrowed, asserts_formats="format-assertion" in names)
