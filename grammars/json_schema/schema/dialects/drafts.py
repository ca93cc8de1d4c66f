"""The drafts of JSON Schema. A keyword of a later draft is an annotation, as each draft says."""

from __future__ import annotations

from typing import Any

from ramet.grammars.errors import ConstraintError
from ramet.grammars.json_schema.schema.keywords import ASSERTION, ROLES, SUBSCHEMA_LIST

from .dialect import Dialect

_SINCE = {
    "draft-04": "allOf anyOf oneOf not minProperties maxProperties multipleOf",
    "draft-06": "const contains propertyNames",
    "draft-07": "if then else",
    "2019-09": "$anchor $recursiveRef $recursiveAnchor dependentRequired dependentSchemas"
    " minContains maxContains unevaluatedItems unevaluatedProperties contentSchema",
    "2020-12": "prefixItems $dynamicRef $dynamicAnchor",
    "": "nullable",
}
"""By draft, the keywords that it adds to those before; "": keywords that no draft has."""


def _roles(last: str) -> dict[str, int]:
    """The keywords of a draft and those before."""
    names = list(_SINCE)
    other = {k for name in names[names.index(last) + 1 :] for k in _SINCE[name].split()}
    other.add("divisibleBy")  # Draft 4 has multipleOf in its place.
    return {keyword: role for keyword, role in ROLES.items() if keyword not in other}


def _nullable(schema: dict[str, Any], _path: str) -> dict[str, Any]:
    """``nullable: true`` next to ``type`` allows null, as in OpenAPI 3.0 and in Ajv."""
    if schema.get("nullable") is not True or "type" not in schema:
        return schema
    names = schema["type"]
    return {**schema, "type": [*(names if isinstance(names, list) else [names]), "null"]}


def _draft_3(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Draft 3's own keywords in those of draft 4."""
    found = {k: v for k, v in schema.items() if k not in ("extends", "disallow", "required")}
    parts: list[Any] = []
    if "extends" in schema:
        base = schema["extends"]
        parts += base if isinstance(base, list) else [base]
    if isinstance(schema.get("type"), list) and not all(isinstance(t, str) for t in schema["type"]):
        del found["type"]
        parts.append({"anyOf": _types(schema["type"])})
    if "disallow" in schema:
        names = schema["disallow"]
        found["not"] = {"anyOf": _types(names if isinstance(names, list) else [names])}
    properties = schema.get("properties")
    needed = list(schema["required"]) if isinstance(schema.get("required"), list) else []
    if isinstance(properties, dict):
        needed += [k for k, v in properties.items() if isinstance(v, dict) and _is_required(v)]
    if needed:
        found["required"] = needed
    if parts:
        found["allOf"] = parts
    name = _DRAFT_3_FORMATS.get(str(schema.get("format")))
    if name == "":
        raise ConstraintError(
            f"{path}/format", "format", f"draft 3's format {schema['format']!r} is not supported"
        )
    if name:
        found["format"] = name
    return found


_DRAFT_3_FORMATS = {"host-name": "hostname", "ip-address": "ipv4", "color": "", "time": ""}


def _is_required(schema: dict[str, Any]) -> bool:
    return schema.get("required") is True


def _types(names: list[Any]) -> list[Any]:
    return [{"type": [name]} if isinstance(name, str) else name for name in names]


DRAFT_3 = Dialect(
    "draft-03",
    # What it is rewritten to is read again, so it has the keywords that combine schemas, too.
    {
        **_roles("draft-04"),
        "divisibleBy": ASSERTION,
        "extends": SUBSCHEMA_LIST,
        "disallow": ASSERTION,
    },
    reference_stands_alone=True,
    identifiers=("$id", "id"),
    rewrite=_draft_3,
    is_shared=False,
)
DRAFT_4 = Dialect(
    "draft-04", _roles("draft-04"), reference_stands_alone=True, identifiers=("$id", "id")
)
DRAFT_6 = Dialect("draft-06", _roles("draft-06"), reference_stands_alone=True)
DRAFT_7 = Dialect("draft-07", _roles("draft-07"), reference_stands_alone=True)
DRAFT_2019 = Dialect("2019-09", _roles("2019-09"))
DRAFT_2020 = Dialect("2020-12", _roles("2020-12"))
ANY_DRAFT = Dialect("any", ROLES, rewrite=_nullable)
"""The dialect of a schema without ``$schema``: the keywords of every draft, and OpenAPI's
``nullable``, which no draft defines otherwise."""
