"""Selects the most used pages of a tree, to be kept over a restart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.runtime.cache.node import Node


@dataclass(frozen=True, slots=True)
class HotPage:
    """A page of ``hottest``; ``parent`` is an index into the same list, or -1."""

    parent: int
    token_ids: npt.NDArray[np.int32]
    page: int


def hottest(root: Node, max_pages: int) -> list[HotPage]:
    """The most used pages, the most recent among equals; parents before children."""
    nodes: list[Node] = []
    stack = list(root.children.values())
    while stack:
        node = stack.pop()
        nodes.append(node)
        stack.extend(node.children.values())
    last_use = {node: node.last_use for node in nodes}
    for node in reversed(nodes):  # a use of a page is a use of its parent
        if node.parent in last_use:
            last_use[node.parent] = max(last_use[node.parent], last_use[node])
    nodes.sort(key=lambda node: (-node.hits, -last_use[node], node.depth))
    chosen: dict[Node, int] = {}
    for node in nodes:
        if len(chosen) == max_pages:
            break
        if node.parent is root or node.parent in chosen:
            chosen[node] = len(chosen)
    return [
        HotPage(
            -1 if node.parent is None or node.parent is root else chosen[node.parent],
            np.frombuffer(node.key, ">i4").astype(np.int32),
            node.page,
        )
        for node in chosen
    ]
