"""Ramet: structured generation and agent serving.

The names that most programs need. Each is imported when it is first asked for, so that
``import ramet`` is quick and needs no model.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ramet.lang import (
        Program,
        Run,
        ScriptedBackend,
        State,
        Value,
        assistant,
        choice,
        connect,
        ebnf,
        gen,
        json,
        program,
        regex,
        select,
        system,
        tool,
        user,
    )
    from ramet.runtime.api.errors import RametError
    from ramet.runtime.api.params import SamplingParams
    from ramet.runtime.engine import Engine, EngineConfig

__all__ = [
    "Engine",
    "EngineConfig",
    "Program",
    "RametError",
    "Run",
    "SamplingParams",
    "ScriptedBackend",
    "State",
    "Value",
    "assistant",
    "choice",
    "connect",
    "ebnf",
    "gen",
    "json",
    "program",
    "regex",
    "select",
    "system",
    "tool",
    "user",
]

_HOMES = {
    "Engine": "ramet.runtime.engine",
    "EngineConfig": "ramet.runtime.engine",
    "RametError": "ramet.runtime.api.errors",
    "SamplingParams": "ramet.runtime.api.params",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ramet' has no attribute {name!r}")
    value = getattr(import_module(_HOMES.get(name, "ramet.lang")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
