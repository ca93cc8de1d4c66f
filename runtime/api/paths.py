"""Paths in a request's body as errors name them: ``tools[0].function.name``."""

from __future__ import annotations

import json
import re


def field_path(field: str, pointer: str = "") -> str:
    """A field with a JSON pointer (RFC 6901) into what it holds, as one path.

    ``("response_format.json_schema.schema", "/properties/n/pattern")`` becomes
    ``response_format.json_schema.schema.properties.n.pattern``. Numbers are shown as indices, and
    keys that are no plain words in quotes. A place that is no pointer (``offset 12`` of a regex)
    is left out.
    """
    path = field
    for step in pointer.split("/")[1:] if pointer.startswith("/") else ():
        key = step.replace("~1", "/").replace("~0", "~")
        if key.isdecimal():
            path += f"[{key}]"
        elif re.fullmatch(r"[\w$-]+", key):
            path += f".{key}"
        else:
            path += f"[{json.dumps(key, ensure_ascii=False)}]"
    return path.removeprefix(".")
