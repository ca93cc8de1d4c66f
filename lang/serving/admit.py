"""Checks a graph before it runs on a server."""

from __future__ import annotations

import asyncio
from typing import Any

from ramet.grammars.constraints.serialize import content_key
from ramet.grammars.constraints.writing import for_writing
from ramet.lang.backends.base import CallPlace
from ramet.lang.backends.engine import EngineBackend
from ramet.lang.base.errors import GraphError, UnsupportedError
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import Gen, Node, Select
from ramet.lang.run.graph_run import check_runnable
from ramet.runtime.api.errors import InvalidConstraintError, InvalidParameterError
from ramet.runtime.api.off_loop import run_off_loop
from ramet.runtime.api.paths import field_path
from ramet.runtime.api.request import GrammarScope
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.server.config import ServerConfig

_INLINE_NODES = 64
"""Most nodes of a graph that is read on the event loop."""

_MAX_NAME_LEN = 256


async def read_graph(data: dict[str, Any], config: ServerConfig) -> RequestGraph:
    """Reads the graph of a body.

    Raises:
        InvalidParameterError: it is invalid, too large or needs unsupported features; ``param`` is
            the path in the body.
    """

    def read() -> RequestGraph:
        graph = RequestGraph.from_json(data, max_nodes=config.max_program_nodes)
        check_runnable(graph, {})
        return graph

    nodes = data.get("nodes")
    is_long = isinstance(nodes, list) and len(nodes) > _INLINE_NODES
    try:
        graph = await run_off_loop(read, is_long=is_long)
    except GraphError as error:
        param = error.param or _place(data, error.node_id)
        raise _refused(error.message, f"graph.{param}" if param else "graph") from None
    _check_sizes(graph, config)
    return graph


async def check_calls(
    graph: RequestGraph, backend: EngineBackend, engine: EngineApi, scope: GrammarScope
) -> None:
    """Checks that the model can make all calls, and compiles every constraint.

    Raises:
        InvalidParameterError, InvalidConstraintError: with the path in the body.
    """
    seen: set[str] = set()
    for index, node in enumerate(graph):
        if not isinstance(node, Gen | Select):
            continue
        path = f"graph.nodes[{index}]"
        try:
            backend.check(node, CallPlace(node.role is not None, graph.continues_turn(node)))
        except UnsupportedError as error:
            raise _refused(error.message, path) from None
        if isinstance(node, Gen) and node.constraint is not None:
            key = content_key(node.constraint)
            if key not in seen:
                seen.add(key)
                try:
                    written = for_writing(node.constraint)
                    await asyncio.wrap_future(engine.compile(written, scope))
                except InvalidConstraintError as error:
                    raise _located(error, f"{path}.constraint", node) from None


def _located(error: InvalidConstraintError, path: str, node: Gen) -> InvalidConstraintError:
    inner = (
        "schema" if node.constraint is not None and node.constraint.kind == "json_schema" else ""
    )
    param = field_path(f"{path}.{inner}" if inner else path, error.pointer)
    message = f"node {node.id!r} ({node.name}): {error.message}"
    return InvalidConstraintError(
        message, param=param, code=error.code, pointer=error.pointer, reason=error.reason
    )


def _check_sizes(graph: RequestGraph, config: ServerConfig) -> None:
    if len(graph.name) > _MAX_NAME_LEN:
        raise _refused(f"a name has at most {_MAX_NAME_LEN} characters", "graph.name")
    if not graph.calls():
        raise _refused("the graph has no call", "graph.nodes")
    for index, node in enumerate(graph):
        _check_node(node, f"graph.nodes[{index}]", config.max_choices)


def _check_node(node: Node, path: str, max_choices: int) -> None:
    if len(node.id) > _MAX_NAME_LEN:
        raise _refused(f"an id has at most {_MAX_NAME_LEN} characters", f"{path}.id")
    if isinstance(node, Gen) and node.params.prompt_logprobs is not None:
        raise _refused("programs don't support prompt_logprobs", f"{path}.params.prompt_logprobs")
    if isinstance(node, Select) and len(node.choices) > max_choices:
        raise _refused(
            f"{len(node.choices)} choices exceed the limit of {max_choices}",
            f"{path}.choices",
        )


def _place(data: dict[str, Any], node_id: str) -> str:
    ids = [item.get("id") for item in data.get("nodes", ())]
    return f"nodes[{ids.index(node_id)}]" if node_id in ids else ""


def _refused(message: str, param: str) -> InvalidParameterError:
    return InvalidParameterError(message, param=param, code=GraphError.default_code)
