"""Adds the bodies that routes parse themselves to FastAPI's OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """The ``openapi_extra`` of a route with this JSON body."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": {
            "4XX": {"description": "The request is invalid; the error names the field."},
            "503": {"description": "The engine is unavailable."},
        },
    }


def install_openapi(app: FastAPI, bodies: Sequence[type[BaseModel]]) -> None:
    """Makes ``app.openapi`` describe ``bodies`` among the components."""
    fastapi_document = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            built = fastapi_document()
            _, schemas = models_json_schema(
                [(model, "validation") for model in bodies], ref_template=_REF
            )
            components = built.setdefault("components", {}).setdefault("schemas", {})
            components.update(schemas["$defs"])
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]
