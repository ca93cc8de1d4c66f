"""The engine: submits requests, steps while there is work, streams events back.

``Engine`` is imported when it is first asked for: a process that only talks to an engine elsewhere
needs none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import EngineConfig
    from .engine import Engine
    from .monitoring.stats import EngineStats

__all__ = ["Engine", "EngineConfig", "EngineStats"]

_HOMES = {"Engine": ".engine", "EngineConfig": ".config", "EngineStats": ".monitoring.stats"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
