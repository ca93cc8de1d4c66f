"""Formats a program's events for the client: values by name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ramet.lang.base.errors import (
    BackendError,
    DependencyFailedError,
    LangError,
    NodeFailedError,
    OutputParseError,
)
from ramet.lang.graph.nodes import Gen, Node
from ramet.lang.run.events import NodeFailed, NodeFinished, RunEvent, TextPiece
from ramet.lang.types.values import add_usage
from ramet.runtime.api.errors import InvalidRequestError, RametError, RequestAbortedError
from ramet.runtime.api.events import Usage
from ramet.runtime.server.calls.logprobs import chat_logprobs
from ramet.runtime.server.calls.usage import CallUsage
from ramet.runtime.server.http.error_response import as_ramet_error

Shaped = dict[str, Any]
"""An event as JSON; its ``type`` is its name."""


class ProgramOutput:
    """Converts a run's events to the client's, and sums up usage.

    ``calls`` has the metadata of each finished call.

    Args:
        places: each node's index in the graph that the client sent.
    """

    def __init__(self, places: dict[str, int]) -> None:
        self._places = places
        self._usage = Usage()
        self.calls: list[Shaped] = []

    def feed(self, events: Iterable[RunEvent]) -> list[Shaped]:
        """Converts events of the run."""
        shaped: list[Shaped] = []
        for event in events:
            match event:
                case TextPiece(node, text):
                    last = shaped[-1] if shaped else {}
                    if last.get("type") == "value.delta" and last["node"] == node.id:
                        last["delta"] += text
                    else:
                        shaped.append({"type": "value.delta", **_named(node), "delta": text})
                case NodeFinished():
                    shaped.append(self._finished(event))
                case NodeFailed(node, error) if not isinstance(error, RequestAbortedError):
                    error_body = self.error_body(error, node)
                    shaped.append({"type": "node.failed", **_named(node), "error": error_body})
        return shaped

    def _finished(self, event: NodeFinished) -> Shaped:
        meta = event.result.meta
        # A graph's values are JSON data: texts, numbers, and lists and objects of these.
        shaped = {"type": "value.done", **_named(event.node), "value": event.result.value}
        if meta.finish_reason is None:
            return shaped
        self._usage = add_usage(self._usage, meta.usage)
        call: Shaped = {"finish_reason": meta.finish_reason, "usage": _usage(meta.usage)}
        if meta.choice_scores:
            call["scores"] = meta.choice_scores
        if isinstance(event.node, Gen) and event.node.params.logprobs is not None:
            call["logprobs"] = chat_logprobs(meta.tokens)
        self.calls.append(_named(event.node) | call)
        return shaped | call

    def error_body(self, error: BaseException, node: Node | None = None) -> Shaped:
        """The error object for what went wrong; ``param`` is the node's place in the body."""
        known = plain_error(error)
        node_id = node.id if node is not None else failed_node(error)
        body: Shaped = dict(known.body()["error"])
        if node_id in self._places:
            body |= {"param": f"graph.nodes[{self._places[node_id]}]", "node": node_id}
        return body

    @property
    def usage(self) -> Shaped:
        """The sum over all calls that have finished."""
        return _usage(self._usage) | {"num_calls": len(self.calls)}


def plain_error(error: BaseException) -> RametError:
    """Unwraps the error of a run.

    A truncated output is the client's error: retrying would truncate it again.
    """
    cause = error.__cause__ if isinstance(error, NodeFailedError) else error
    if isinstance(cause, OutputParseError):
        return InvalidRequestError(cause.message, code=cause.code)
    if isinstance(cause, LangError) and not isinstance(cause, BackendError | DependencyFailedError):
        return cause
    if isinstance(cause, Exception):
        return as_ramet_error(cause)
    return RequestAbortedError("the program was aborted")


def failed_node(error: BaseException) -> str:
    """The node that failed, if one is named."""
    return error.node_id if isinstance(error, NodeFailedError) else ""


def _named(node: Node) -> Shaped:
    return {"name": getattr(node, "name", ""), "node": node.id}


def _usage(usage: Usage) -> Shaped:
    return CallUsage.from_usages([usage], 1).as_openai()
