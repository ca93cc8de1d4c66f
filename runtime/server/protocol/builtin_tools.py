"""Tools that run on an API provider's servers, which the model here is not shown.

Clients send them by default, often without a way to turn them off, so they are left out of the
prompt with a warning instead of being refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo
from pydantic_core import PydanticCustomError

from ramet.runtime.server.protocol.base import MISSING, UNSUPPORTED, warnings_of
from ramet.runtime.server.protocol.tagged_unions import type_of

Tools = TypeVar("Tools", bound=Sequence[Any])

BUILT_IN = "<built-in>"
"""The tag of built-in tools in unions."""

_NAMES = (
    "advisor",
    "apply_patch",
    "bash",
    "code_execution",
    "code_interpreter",
    "computer",
    "computer_use",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "mcp_toolset",
    "memory",
    "programmatic_tool_calling",
    "shell",
    "text_editor",
    "tool_search",
    "tool_search_tool_bm25",
    "tool_search_tool_regex",
    "web_extractor",
    "web_fetch",
    "web_search",
    "x_search",
)
_TYPE = re.compile(rf"(?:{'|'.join(_NAMES)})(?:_preview)?(?:_?\d{{4}}_?\d{{2}}_?\d{{2}})?")


class BuiltInTool(BaseModel):
    """A built-in tool, whatever its options."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    type: str


def is_built_in(kind: str) -> bool:
    """Whether ``kind`` is a built-in tool's type, with or without a version."""
    return _TYPE.fullmatch(kind) is not None


def tool_type(default: str = "") -> Callable[[Any], str]:
    """Makes a discriminator: the type in angle brackets, or ``BUILT_IN``."""
    read = type_of(default)

    def tag(value: Any) -> str:
        kind = read(value)
        return BUILT_IN if is_built_in(kind) else f"<{kind}>"

    return tag


def supported_tools(types: Collection[str], *, default: str = "") -> BeforeValidator:
    """Makes a validator that refuses tools of other types by name, built-in ones excepted."""
    read = type_of(default)
    names = ", ".join(types)

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            return value  # validation has a better message
        kind = read(value)
        if not kind and value.get("type") is None:
            raise PydanticCustomError(MISSING, "type is required", {"name": "type"})
        if kind not in types and not is_built_in(kind):
            raise PydanticCustomError(
                UNSUPPORTED,
                "tools of type {kind} are not supported by this server; supported: {names}",
                {"name": "type", "kind": repr(value["type"]), "names": names},
            )
        return value

    return BeforeValidator(check)


def warn_of_builtin_tools(tools: Tools, info: ValidationInfo) -> Tools:
    """Adds a warning for each built-in tool of a list; an ``AfterValidator``."""
    for index, tool in enumerate(tools):
        if isinstance(tool, BuiltInTool):
            warnings_of(info).add(
                f"tools[{index}]", f"the built-in tool {tool.type!r} is not offered to the model"
            )
    return tools
