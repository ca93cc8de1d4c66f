"""Keeps an engine's hot prefixes over a restart."""

from __future__ import annotations

from ramet.runtime.api.batch import ModelRunner, PageStorage
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.cache import RadixCache
from ramet.runtime.cache.prefix_store import PrefixStore
from ramet.runtime.engine.config import EngineConfig


class PrefixPersistence:
    """Loads a cache from ``config.prefix_store`` and saves it there, if there is a store.

    For one thread; loads on construction.

    Args:
        fingerprint: identifies the model.

    Raises:
        InvalidParameterError: there is a store, and the runner's pages can't be read.
    """

    def __init__(
        self, cache: RadixCache, runner: ModelRunner, config: EngineConfig, fingerprint: str
    ) -> None:
        self._cache = cache
        self._storage: PageStorage | None = None
        if config.prefix_store is None:
            return
        if runner.page_storage is None or not fingerprint:
            raise InvalidParameterError(
                f"{type(runner).__name__} can't keep prefixes in a store", param="prefix_store"
            )
        self._storage = runner.page_storage
        key = f"{fingerprint} {self._storage.page_format}"
        self._store = PrefixStore(config.prefix_store, key, config.prefix_store_bytes)
        self._store.check_writable()
        self._store.load(cache, self._storage, max_pages=runner.num_pages // 2)

    def save(self) -> int:
        """Stores the hot prefixes; returns the number of pages."""
        return 0 if self._storage is None else self._store.save(self._cache, self._storage)
