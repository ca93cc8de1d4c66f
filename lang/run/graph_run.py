"""Running a RequestGraph that came as data, without the program that made it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ramet.lang.backends.choose import BackendLike, as_backend
from ramet.lang.base.errors import GraphError
from ramet.lang.base.event_loop import shared_loop
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import Gen, Join, Node, ToolCall
from ramet.lang.run.executor import NodeCode
from ramet.lang.run.run import Run
from ramet.lang.run.run_options import RunOptions
from ramet.lang.run.session import Session
from ramet.lang.run.writer import Writer
from ramet.lang.types.tools import Tool, as_tool
from ramet.lang.types.types import described_output
from ramet.lang.types.values import Value

_NODES_AT_ONCE = 64


def run_graph(
    graph: RequestGraph,
    *,
    backend: BackendLike,
    tools: Mapping[str, Tool[..., Any] | Callable[..., Any]] | None = None,
    seed: int = 0,
    cache_salt: str = "",
    priority: int = 0,
    max_text_len: int | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> Run[dict[str, Any]]:
    """Starts a graph's run and returns it immediately; its ``result`` has the values by variable.

    A Gen's value is what its constraint and the name of its type make of the text: see
    ``described_output``. A Gen without a seed draws from ``seed`` and its place in the graph.
    ``max_text_len`` bounds what values make of text: see ``RunOptions``. ``tools`` are the
    functions that the graph's ToolCalls name. The run lives on ``loop``, or else on the one that
    all programs of synchronous callers share.

    Raises:
        GraphError: the graph is incomplete, needs a tool that isn't given, or holds a value that
            only the program's own code can make.
    """
    known = {name: as_tool(function) for name, function in (tools or {}).items()}
    check_runnable(graph, known)
    nodes = list(_in_order(graph))

    def bind(session: Session, first: Writer) -> Callable[[], Awaitable[dict[str, Value[Any]]]]:
        async def body() -> dict[str, Value[Any]]:
            # First the whole graph, then its calls: each is sent knowing all that comes after it.
            values: dict[str, Value[Any]] = {}
            codes: dict[str, NodeCode] = {}
            async for node in _with_pauses(nodes):
                code: NodeCode = None
                if isinstance(node, ToolCall):
                    code = known[node.tool]
                elif isinstance(node, Gen):
                    code = described_output(node.constraint, node.returns)
                    if node.params.seed is None:
                        seed = session.seed_of(node.id)
                        node = replace(node, params=replace(node.params, seed=seed))
                codes[node.id] = code
                value = session.add(node, code, sends=False)
                name = getattr(node, "name", "")
                if name and (name not in values or not graph.branch_of(node.id)):
                    values[name] = value
            first.close()
            async for node in _with_pauses(session.graph):
                session.send(node, codes[node.id])
            return values

        return body

    options = RunOptions(
        seed=seed, cache_salt=cache_salt, priority=priority, max_text_len=max_text_len
    )
    run: Run[dict[str, Any]] = Run(
        graph.name, bind, as_backend(backend), options, loop or shared_loop(), {}
    )
    return run.begin()


async def _with_pauses(nodes: Iterable[Node]) -> AsyncIterator[Node]:
    """Yields the nodes, and now and then to the event loop's other tasks."""
    for index, node in enumerate(nodes):
        if index % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
            await asyncio.sleep(0)
        yield node


def check_runnable(graph: RequestGraph, tools: Mapping[str, Any]) -> None:
    """Refuses a graph that can't run without its program; ``GraphError`` has the reason."""
    for end in graph.open_ends:
        raise GraphError(
            f"the graph ends where its program {graph.reason_of(end)}", param="open_ends"
        )
    for node in graph:
        if isinstance(node, ToolCall) and node.tool not in tools:
            raise GraphError(
                f"node {node.id!r} needs the tool {node.tool!r}, which isn't given",
                node_id=node.id,
            )
        if isinstance(node, Join) and node.of in ("branch", "agent"):
            raise GraphError(
                f"only the program's own code can make node {node.id!r} ({node.of})",
                node_id=node.id,
            )


def _in_order(graph: RequestGraph) -> Iterator[Node]:
    """The nodes, each after all that it follows and refers to."""
    done: set[str] = set()
    for first in graph:
        stack = [first]
        while stack:
            node = stack[-1]
            missing = [needed for needed in graph.edges(node) if needed not in done]
            if missing:
                stack.extend(graph[needed] for needed in missing)
                continue
            stack.pop()
            if node.id not in done:
                done.add(node.id)
                yield node
