"""Every error of the language, as one tree under the runtime's root.

::

    LangError (a RametError)
    ├── UsageError                  a program is wrong: raised before anything is sent
    │   ├── ArgumentError           arguments that a program or function doesn't take (a TypeError)
    │   ├── DuplicateNameError      a variable is named twice in one state
    │   ├── UnknownNameError        no variable has this name (a KeyError too)
    │   ├── ForeignValueError       a Value of another run
    │   ├── DamagedReferenceError   a reference in a text was cut or changed
    │   ├── RoleError               text and roles are mixed in a way no prompt can hold
    │   ├── UnresolvedValueError    reading a Value where waiting is impossible
    │   ├── ReferenceFormatError    a value that can't be put into a text as asked
    │   ├── TextTooLongError        values make more text than a run may have
    │   ├── OutputTypeError         a type that can't become a constraint
    │   ├── GraphError              a cycle, a dangling edge, an unknown node
    │   └── UnsupportedError        the backend can't do what a node asks for
    ├── NodeFailedError             a call failed; names the node, keeps the finished values
    ├── DependencyFailedError       a call was not made: one that it needs failed
    ├── OutputParseError            an output is not a value of its type
    ├── OutputTruncatedError        an output ended at max_tokens before its value was complete
    ├── ToolFailedError             a tool raised, or ran out of time
    ├── RunTimeoutError             a run took longer than its ``timeout_s``
    ├── AgentLimitError             an agent loop used up its turns, time or tokens
    ├── BackendError                a remote backend answered with an error, or not at all
    └── ScriptError                 a ScriptedBackend has no fitting answer
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ramet.runtime.api.errors import InvalidParameterError, RametError


class LangError(RametError):
    """The root of the language's errors."""

    default_code = "program_error"


class UsageError(LangError):
    """A mistake in a program, which fails for any output of the model."""

    status = 400
    type = "invalid_request_error"


class ArgumentError(UsageError, InvalidParameterError, TypeError):
    """Arguments that a program, or a function of the language, doesn't take."""

    default_code = "invalid_argument"


class DuplicateNameError(UsageError):
    """A variable of this name exists already in this state or one that it was forked from."""

    default_code = "duplicate_name"


class UnknownNameError(UsageError, KeyError):
    """The state has no variable of this name."""

    default_code = "unknown_name"

    def __str__(self) -> str:
        return self.message


class ForeignValueError(UsageError):
    """A Value that belongs to another run."""

    default_code = "foreign_value"


class DamagedReferenceError(UsageError):
    """Text holds part of a reference: it was sliced, or its case was changed."""

    default_code = "damaged_reference"


class RoleError(UsageError):
    """A state holds either raw text or chat turns, and only an assistant generates."""

    default_code = "role_error"


class UnresolvedValueError(UsageError):
    """A Value that isn't there yet was read where Python can't wait; ``await`` it."""

    default_code = "unresolved_value"


class ReferenceFormatError(UsageError):
    """A value can't be formatted by the specification of a reference to it."""

    default_code = "invalid_format"


class TextTooLongError(UsageError):
    """A run's values were put into more text than the run may have."""

    default_code = "text_too_long"


class OutputTypeError(UsageError):
    """A type that no constraint can stand for."""

    default_code = "unsupported_type"


class GraphError(UsageError):
    """A RequestGraph that can't be executed.

    ``node_id`` is the node at fault, where there is one; ``param`` its place in a graph that came
    as JSON, such as ``nodes[3].params``.
    """

    default_code = "invalid_graph"

    def __init__(self, message: str, *, node_id: str = "", param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.node_id = node_id


class UnsupportedError(UsageError):
    """The backend can't express something; raised before the call is made.

    Attributes:
        backend: the backend's name.
        feature: what it lacks.
        node_id: the node that asks for it.
    """

    default_code = "unsupported_by_backend"

    def __init__(self, backend: str, feature: str, node_id: str = "") -> None:
        where = f"node {node_id!r}: " if node_id else ""
        super().__init__(f"{where}backend {backend!r} has no {feature}", param=feature)
        self.backend = backend
        self.feature = feature
        self.node_id = node_id


class NodeFailedError(LangError):
    """One node of a run failed. The reason is ``__cause__``.

    Attributes:
        node_id: the node's place in the graph.
        node_name: the node's variable, or its kind where it has none.
        values: the values that the run had finished, by variable.
        place: ``file.py:line`` of the program's line that made the node; empty: none did.
    """

    default_code = "node_failed"

    def __init__(
        self,
        node_id: str,
        node_name: str,
        cause: BaseException,
        values: Mapping[str, Any],
        place: str = "",
    ) -> None:
        where = f"{place}, node {node_id}" if place else f"node {node_id}"
        super().__init__(f"{node_name!r} ({where}) failed: {_describe(cause)}")
        self.node_id = node_id
        self.node_name = node_name
        self.values = dict(values)
        self.place = place
        self.__cause__ = cause

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.node_id, self.node_name, self.__cause__, self.values, self.place)
        return type(self), arguments


class DependencyFailedError(LangError):
    """A node that was never sent, because ``failed_id`` failed."""

    default_code = "dependency_failed"

    def __init__(self, failed_id: str, failed_name: str) -> None:
        super().__init__(f"not sent: it needs {failed_name!r} (node {failed_id}), which failed")
        self.failed_id = failed_id


class OutputParseError(LangError):
    """``text`` is what the model wrote; it isn't a value of the asked type."""

    default_code = "output_parse_error"

    def __init__(self, text: str, wanted: str, reason: str) -> None:
        super().__init__(f"the output is not {wanted}: {reason}; it is {_shortened(text)}")
        self.text = text


class OutputTruncatedError(OutputParseError):
    """The output ended at ``max_tokens`` before its value was complete."""

    default_code = "output_truncated"


class ToolFailedError(LangError):
    """A tool raised or ran out of time. In an agent loop the model gets this as its result."""

    default_code = "tool_failed"

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(f"tool {tool!r}: {reason}")
        self.tool = tool
        self.reason = reason


class RunTimeoutError(LangError):
    """A run took longer than its ``timeout_s``; its calls were aborted.

    ``values`` are those that had finished, by variable.
    """

    status = 504
    default_code = "run_timeout"

    def __init__(self, name: str, timeout_s: float, values: Mapping[str, Any]) -> None:
        super().__init__(f"the run of {name!r} took longer than {timeout_s:g} s")
        self.values = dict(values)


class AgentLimitError(LangError):
    """An agent loop used up its turns, time or tokens before it answered."""

    default_code = "agent_limit"


class BackendError(LangError):
    """A remote backend's own error, with its HTTP status where there is one."""

    default_code = "backend_error"

    def __init__(self, message: str, *, http_status: int | None = None) -> None:
        super().__init__(message)
        self.http_status = http_status


class ScriptError(LangError):
    """A ScriptedBackend's script doesn't fit the call that was made."""

    default_code = "script_error"


_MAX_SHOWN_LEN = 120


def _shortened(text: str) -> str:
    if len(text) <= _MAX_SHOWN_LEN:
        return repr(text)
    half = _MAX_SHOWN_LEN // 2
    return f"{text[:half]!r} ... {text[-half:]!r}"


def _describe(error: BaseException) -> str:
    text = str(error)
    return text if isinstance(error, RametError) else f"{type(error).__name__}: {text}"
