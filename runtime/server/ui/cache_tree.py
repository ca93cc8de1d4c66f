"""The cache's tree as the page draws it: text for the tenant whose prefixes it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ramet.runtime.cache import CacheView, NodeView
from ramet.runtime.engine.api import EngineApi
from ramet.runtime.server.calls.tenants import Tenant
from ramet.runtime.tokenizer import Tokenizer


class SharedViews:
    """Views of an engine's cache, taken at most once a second for all that look."""

    def __init__(
        self,
        engine: EngineApi,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._interval_s = interval_s
        self._clock = clock
        self._taking = asyncio.Lock()
        self._latest: tuple[float, CacheView] | None = None

    async def latest(self) -> CacheView:
        """A view that is at most a second old.

        Raises:
            EngineDeadError: there is no engine now.
        """
        async with self._taking:
            if self._latest is None or self._clock() - self._latest[0] >= self._interval_s:
                view = await asyncio.to_thread(self._engine.cache_view)
                self._latest = self._clock(), view
            return self._latest[1]


def tree_for(view: CacheView, tenant: Tenant, tokenizer: Tokenizer) -> dict[str, Any]:
    """A view in JSON, as a tenant may see it.

    Another tenant's nodes have sizes and times, but neither text nor, but for an admin, a name.
    """
    return {
        "nodes": [_node(each, tenant, tokenizer) for each in view.nodes],
        "left_out": view.num_left_out,
    }


def _node(node: NodeView, tenant: Tenant, tokenizer: Tokenizer) -> dict[str, Any]:
    is_own = node.namespace.startswith(tenant.scoped(""))
    owner = node.namespace.partition("/")[0] if tenant.name else ""
    return {
        "id": node.id,
        "parent": node.parent,
        "tokens": node.num_tokens,
        "pages": node.num_pages,
        "age": node.age,
        "hits": node.hits,
        "held": node.is_held,
        "next_use": node.next_use,
        "tenant": owner if is_own or tenant.admin else None,
        "text": tokenizer.decode(node.head) if is_own else None,
    }
