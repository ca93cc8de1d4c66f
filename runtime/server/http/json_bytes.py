"""JSON as it is sent."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import orjson


def json_bytes(value: Any) -> bytes:
    """A value as JSON. Integers of any size are written: a client's schema may hold one, and a
    model may write one; orjson alone ends at 64 bits."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=dataclasses.asdict)
        return text.encode()
