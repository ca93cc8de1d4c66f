"""The page pool and the tree of cached prefixes over it."""

from ramet.runtime.cache.node import PrefixHandle
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.radix_cache import RadixCache
from ramet.runtime.cache.view import CacheView, NodeView

__all__ = ["CacheView", "NodeView", "PagePool", "PrefixHandle", "RadixCache"]
