"""ramet.lang: programs whose calls to a model become a graph that the runtime understands."""

from ramet.lang.backends.base import Backend
from ramet.lang.backends.choose import set_default_backend
from ramet.lang.backends.engine import EngineBackend
from ramet.lang.backends.http import HttpBackend, connect
from ramet.lang.backends.recorded import RecordedBackend
from ramet.lang.backends.scripted import ScriptedBackend
from ramet.lang.base.errors import (
    AgentLimitError,
    ArgumentError,
    BackendError,
    DamagedReferenceError,
    DependencyFailedError,
    DuplicateNameError,
    ForeignValueError,
    GraphError,
    LangError,
    NodeFailedError,
    OutputParseError,
    OutputTruncatedError,
    OutputTypeError,
    RoleError,
    RunTimeoutError,
    ScriptError,
    ToolFailedError,
    UnknownNameError,
    UnresolvedValueError,
    UnsupportedError,
    UsageError,
)
from ramet.lang.graph.explain import Explanation
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.program import Program, program
from ramet.lang.replay import replay
from ramet.lang.run.agent import AgentLimits, describe_tools
from ramet.lang.run.events import (
    NodeAdded,
    NodeFailed,
    NodeFinished,
    NodeStarted,
    RunEnded,
    RunEvent,
    TextPiece,
)
from ramet.lang.run.graph_run import run_graph
from ramet.lang.run.run import Run
from ramet.lang.run.state import Branches, State
from ramet.lang.trace.diff import TraceDiff
from ramet.lang.trace.trace import Trace
from ramet.lang.types.expressions import (
    assistant,
    assistant_begin,
    assistant_end,
    examples,
    gen,
    select,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
)
from ramet.lang.types.patterns import Pattern, choice, ebnf, json, regex, text
from ramet.lang.types.schemas import describe_type
from ramet.lang.types.tools import Tool, tool
from ramet.lang.types.values import Meta, Value

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
    "EngineBackend",
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
    "RecordedBackend",
    "RequestGraph",
    "RoleError",
    "Run",
    "RunEnded",
    "RunEvent",
    "RunTimeoutError",
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
