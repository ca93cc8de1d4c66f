"""JSON responses, and the ids in them."""

from __future__ import annotations

import dataclasses
import json
import uuid
from typing import Any

import orjson
from starlette.responses import Response


class JsonResponse(Response):
    """A JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json_bytes(content)


def json_bytes(value: Any) -> bytes:
    """Serialises a value to JSON, integers of any size included.

    orjson is limited to 64 bits, but a client's schema and a model's output may exceed them.
    """
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=dataclasses.asdict)
        return text.encode()


def new_id(prefix: str, separator: str = "-") -> str:
    """Makes an unguessable id such as ``chatcmpl-5f...``."""
    return f"{prefix}{separator}{uuid.uuid4().hex}"
