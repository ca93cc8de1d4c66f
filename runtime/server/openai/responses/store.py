"""Stores finished responses in memory, so that a conversation can continue by id."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ramet.runtime.api.errors import NotFoundError
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.server.http.json_response import json_bytes


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response and its conversation, answer included and without instructions."""

    response: dict[str, Any]
    messages: Sequence[dict[str, Any]]


class ResponseStore:
    """One tenant's responses: an LRU store, bounded in number and bytes.

    A response counts with its whole conversation, though conversations share their messages: the
    bound holds in the worst case. ``on_change`` is called when one has been stored or deleted.
    """

    def __init__(
        self, max_responses: int, max_bytes: int, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._on_change = on_change
        self._kept: OrderedDict[str, tuple[StoredResponse, int]] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, stored: StoredResponse) -> bool:
        """Stores a response; returns False if it is larger than the whole store."""
        num_bytes = len(json_bytes(stored))
        if num_bytes > self._max_bytes or not self._max_responses:
            return False
        response_id = stored.response["id"]
        _, replaced = self._kept.pop(response_id, (None, 0))
        self._kept[response_id] = (stored, num_bytes)
        self.num_bytes += num_bytes - replaced
        while self.num_bytes > self._max_bytes or len(self._kept) > self._max_responses:
            self.drop_oldest()
        self._on_change()
        return True

    def get(self, response_id: str, *, param: str = "response_id") -> StoredResponse:
        """Returns a stored response, or raises ``NotFoundError``."""
        if response_id not in self._kept:
            raise NotFoundError(
                f"no response {response_id!r} is stored; it may have been deleted, sent with "
                "store: false, or dropped for newer ones",
                param=param,
                code="response_not_found",
            )
        self._kept.move_to_end(response_id)
        return self._kept[response_id][0]

    def delete(self, response_id: str) -> None:
        """Deletes a stored response, or raises ``NotFoundError``."""
        self.get(response_id)
        _, num_bytes = self._kept.pop(response_id)
        self.num_bytes -= num_bytes
        self._on_change()

    def drop_oldest(self) -> None:
        """Drops the least recently used response."""
        _, (_, freed) = self._kept.popitem(last=False)
        self.num_bytes -= freed


class ResponseStores:
    """A separate store for each tenant; together they keep within ``memory``.

    Where they don't, the tenant with the most bytes loses its least recently used responses.
    """

    def __init__(self, max_responses: int, max_bytes: int, memory: MemoryPart) -> None:
        self._bounds = (max_responses, min(max_bytes, memory.limit))
        self._memory = memory
        self._stores: dict[str, ResponseStore] = {}

    def for_tenant(self, tenant_name: str) -> ResponseStore:
        """The tenant's store."""
        if tenant_name not in self._stores:
            self._stores[tenant_name] = ResponseStore(*self._bounds, self._keep_within_memory)
        return self._stores[tenant_name]

    def _keep_within_memory(self) -> None:
        stores = self._stores.values()
        while (total := sum(store.num_bytes for store in stores)) > self._memory.limit:
            max(stores, key=lambda store: store.num_bytes).drop_oldest()
        self._memory.num_bytes = total
