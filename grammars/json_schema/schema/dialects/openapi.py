"""OpenAPI's schema objects.

Version 3.0 has a dialect of its own: ``nullable``, formats with a meaning, and no ``type`` lists;
3.1 is draft 2020-12. In both, ``discriminator`` next to ``oneOf`` or ``anyOf`` binds the tag's
property to the schema that it selects.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from ramet.grammars.errors import ConstraintError
from ramet.grammars.json_schema.schema.keywords import ASSERTION

from .dialect import Dialect
from .drafts import DRAFT_4, DRAFT_2020

_BASE_64 = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_SCHEMAS = "#/components/schemas/"


def _tagged(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """Each alternative with the values that its discriminator's property has there."""
    discriminator = schema.get("discriminator")
    keyword = next((k for k in ("oneOf", "anyOf") if k in schema), None)
    if discriminator is None or keyword is None:
        return schema
    where = f"{path}/discriminator"
    name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
    if not isinstance(name, str):
        raise ConstraintError(where, "discriminator", "a discriminator needs a propertyName")
    mapping = discriminator.get("mapping", {})
    if not isinstance(mapping, dict) or not all(isinstance(v, str) for v in mapping.values()):
        raise ConstraintError(f"{where}/mapping", "discriminator", "a mapping names schemas")
    options = schema[keyword]
    tagged = []
    for option in options if isinstance(options, list) else ():
        reference = option.get("$ref") if isinstance(option, dict) else None
        if not isinstance(reference, str):
            tagged.append(option)  # Without a name, no tag selects it.
            continue
        schema_name = unquote(reference.rpartition("/")[2])
        tags = [tag for tag, target in mapping.items() if _full(target) == reference]
        if not tags or schema_name not in mapping:
            tags.append(schema_name)
        wanted = {"type": "object", "properties": {name: {"enum": tags}}, "required": [name]}
        tagged.append({"allOf": [option, wanted]})
    return {**schema, keyword: tagged}


def _full(target: str) -> str:
    """A mapping's value as a reference: a schema's name stands for its place."""
    is_name = "/" not in target and "#" not in target and "." not in target
    return _SCHEMAS + target if is_name else target


def _version_3_0(schema: dict[str, Any], path: str) -> dict[str, Any]:
    schema = _tagged(schema, path)
    if schema.get("nullable") is True and isinstance(schema.get("type"), str):
        schema = {**schema, "type": [schema["type"], "null"]}
    name = schema.get("format")
    if name in ("int32", "int64"):
        limit = 1 << (31 if name == "int32" else 63)
        bounds: dict[str, Any] = {"minimum": -limit, "maximum": limit - 1}
        schema = {**schema, "allOf": [*schema.get("allOf", []), bounds]}
    elif name == "byte":
        schema = {**schema, "allOf": [*schema.get("allOf", []), {"pattern": _BASE_64}]}
    return schema


OPENAPI_3_0 = Dialect(
    "openapi-3.0",
    {**DRAFT_4.roles, "nullable": ASSERTION, "discriminator": ASSERTION},
    reference_stands_alone=True,
    identifiers=(),
    rewrite=_version_3_0,
    is_shared=False,
)
OPENAPI_3_1 = Dialect(
    "openapi-3.1",
    {**DRAFT_2020.roles, "discriminator": ASSERTION},
    rewrite=_tagged,
    is_shared=False,
)
