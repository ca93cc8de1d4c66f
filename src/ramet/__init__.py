"""Ramet: structured generation and agent serving.

All public names of the language and the engine. Each is imported when it is first asked for, so
that ``import ramet`` is quick and needs no model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    __version__: str
    from ramet.lang import *
    from ramet.runtime.api.errors import RametError
    from ramet.runtime.api.params import SamplingParams
    from ramet.runtime.engine import Engine, EngineConfig

__all__ = [
    "AgentLimitError",
    "AgentLimits",
    "ArgumentError",
    "Backend",
    "BackendError",
    "Branches",
    "DamagedReferenceError",
    "DependencyFailedError",
    "DuplicateNameError",
    "Engine",
    "EngineBackend",
    "EngineConfig",
    "Explanation",
    "ForeignValueError",
    "GraphError",
    "HttpBackend",
    "LangError",
    "Meta",
    "NodeAdded",
    "NodeFailed",
    "NodeFailedError",
    "NodeFinished",
    "NodeStarted",
    "OutputParseError",
    "OutputTruncatedError",
    "OutputTypeError",
    "Pattern",
    "Program",
    "RametError",
    "RecordedBackend",
    "RequestGraph",
    "RoleError",
    "Run",
    "RunEnded",
    "RunEvent",
    "RunTimeoutError",
    "SamplingParams",
    "ScriptError",
    "ScriptedBackend",
    "State",
    "TextPiece",
    "Tool",
    "ToolFailedError",
    "Trace",
    "TraceDiff",
    "UnknownNameError",
    "UnresolvedValueError",
    "UnsupportedError",
    "UsageError",
    "Value",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "choice",
    "connect",
    "describe_tools",
    "describe_type",
    "ebnf",
    "examples",
    "gen",
    "json",
    "program",
    "regex",
    "replay",
    "run_graph",
    "select",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "text",
    "tool",
    "user",
    "user_begin",
    "user_end",
]

_HOMES = {
    "Engine": "ramet.runtime.engine",
    "EngineConfig": "ramet.runtime.engine",
    "RametError": "ramet.runtime.api.errors",
    "SamplingParams": "ramet.runtime.api.params",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    if name not in __all__:
        raise AttributeError(f"module 'ramet' has no attribute {name!r}", name=name)
    if name == "__version__":
        value: Any = metadata.version("ramet")
    else:
        value = getattr(import_module(_HOMES.get(name, "ramet.lang")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
