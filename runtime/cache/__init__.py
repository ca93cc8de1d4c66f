"""The page pool and the tree of cached prefixes over it."""

from ramet.runtime.cache.node import PrefixHandle
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_cache import RadixCache

__all__ = ["PagePool", "PrefixHandle", "RadixCache"]
