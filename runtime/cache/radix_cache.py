"""The tree of cached prefixes (after RadixAttention, Zheng et al. 2023), a page a node.

Page ownership::

    allocate(n)          the caller owns the pages, and writes them
    insert(ids, pages)   the tree owns them; where it has the same tokens already, the caller's
                         page is freed and the tree's takes its place in the caller's page table
    free(pages)          the caller gives back what it never filled

A page of the tree is safe to read while a handle at or below its node is held. Only the tree
frees its pages: by eviction, from the leaves, and never one that is locked. All calls come from
one thread, between two steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import InvariantError
from ramet.runtime.cache.eviction import EvictionQueue
from ramet.runtime.cache.hot_pages import HotPage, hottest
from ramet.runtime.cache.node import TOKEN_BYTES, Node, PrefixHandle, token_key
from ramet.runtime.cache.page_pool import PagePool
from ramet.runtime.cache.view import CacheView, view_of


class RadixCache:
    """Cached prefixes over one page pool, apart by namespace.

    ``match`` is token-exact: it may end inside a page, whose head the caller then copies.
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.page_size = pool.page_size
        self.num_cached = 0  # pages that the tree owns
        self.num_evicted = 0  # since the start
        self._page_bytes = pool.page_size * TOKEN_BYTES
        self._roots: dict[str, Node] = {}
        self._queue = EvictionQueue()
        self._num_locked = 0
        self._detached: set[Node] = set()  # superseded while held
        self._clock = 0

    # -- pages ---------------------------------------------------------------------------------

    @property
    def num_locked(self) -> int:
        """Pages of the tree that can't be evicted now."""
        return self._num_locked

    @property
    def num_available(self) -> int:
        """Pages that ``allocate`` can give: free ones and evictable ones."""
        return self.pool.num_free + self.num_cached - self._num_locked

    def num_evictable(self, handle: PrefixHandle) -> int:
        """Pages of a prefix that are not held."""
        node, count = handle.node, 0
        while node.parent is not None and not node.locked:
            count += 1
            node = node.parent
        return count

    def allocate(self, count: int) -> list[int] | None:
        """Gives the caller ``count`` pages, evicting as needed; changes nothing if it can't."""
        if count > self.num_available:
            return None
        if count > self.pool.num_free:
            self.evict(count - self.pool.num_free)
        return self.pool.allocate(count)

    def free(self, pages: Iterable[int]) -> None:
        """Takes back pages that the caller owns."""
        self.pool.free(pages)

    def evict(self, num_pages: int) -> int:
        """Frees up to ``num_pages`` pages, the farthest next use first; returns how many."""
        num_evicted = 0
        while num_evicted < num_pages and (node := self._queue.evict(self._clock)) is not None:
            self._free_page(node)
            if node.parent is not None:
                self._drop_if_idle(node.parent)
            num_evicted += 1
        self.num_evicted += num_evicted
        return num_evicted

    def clear(self) -> int:
        """Evicts all that can be; returns the number of pages."""
        return self.evict(self.num_cached - self._num_locked)

    # -- prefixes ------------------------------------------------------------------------------

    def match(self, token_ids: npt.ArrayLike, namespace: str = "") -> PrefixHandle:
        """Finds the longest cached prefix of ``token_ids``, to the token; changes nothing.

        Hold the handle before the next ``allocate``, ``insert`` or ``evict``.
        """
        root = self._roots.get(namespace)
        if root is None:
            return PrefixHandle(Node(b"", -1, None, self._clock), 0)
        node, key, size = root, token_key(token_ids), self._page_bytes
        for start in range(0, len(key), size):
            page_key = key[start : start + size]
            child = node.children.get(page_key)
            if child is None:
                closest, length = node.closest_child(page_key)
                return PrefixHandle(closest or node, start // TOKEN_BYTES + length)
            node = child
        return PrefixHandle(node, len(key) // TOKEN_BYTES)

    def use(self, handle: PrefixHandle) -> list[int]:
        """The pages of a held prefix, in order, for a request that starts from it.

        Where ``matched_len`` ends inside the last page, that one is to be copied. The clock
        ticks, and uses that were expected of the prefix are counted off.
        """
        self._clock += 1
        node: Node = handle.node
        self._queue.reuse.note_use(node)
        node.last_use = self._clock
        pages = [0] * node.depth
        while node.parent is not None:
            pages[node.depth - 1] = node.page
            node.hits += 1
            if node.uses:
                node.uses -= 1
                node.next_use = None if node.uses == 0 else node.next_use
            node = node.parent
        return pages

    def hold(self, handle: PrefixHandle) -> None:
        """Keeps the handle's pages from eviction until ``release``."""
        node = handle.node
        if node.detached:
            raise InvariantError("a handle was held after its pages were evicted")
        node.holds += 1
        if node.holds == 1 and not node.locked_children:
            self._lock(node)

    def release(self, handle: PrefixHandle) -> None:
        """Ends a ``hold``."""
        node = handle.node
        if node.holds < 1:
            raise InvariantError("a handle was released that was not held")
        node.holds -= 1
        node.last_use = self._clock
        if not node.locked:
            self._unlock(node)

    def continuation(self, handle: PrefixHandle, token_ids: npt.ArrayLike, count: int) -> list[int]:
        """Up to ``count`` tokens that are cached after a held whole-page prefix and ``token_ids``.

        Of several continuations, any.
        """
        node: Node | None = handle.node
        key, size = token_key(token_ids), self._page_bytes
        found = b""
        if handle.node.parent is None:
            return []  # nothing in common yet: any prompt would continue this one
        while node is not None and len(key) >= size:
            node, key = node.children.get(key[:size]), key[size:]
        while node is not None and len(found) < count * TOKEN_BYTES:
            node = node.extending_child(key)
            if node is not None:
                found, key = found + node.key[len(key) :], b""
        ids: list[int] = np.frombuffer(found[: count * TOKEN_BYTES], ">i4").tolist()
        return ids

    def insert(
        self,
        token_ids: npt.ArrayLike,
        pages: Sequence[int],
        namespace: str = "",
        *,
        after: PrefixHandle | None = None,
    ) -> tuple[PrefixHandle, list[int]]:
        """Gives computed pages to the tree.

        ``pages[i]`` holds tokens ``i * page_size`` onward of ``token_ids``; all but the last are
        full. With ``after``, a held handle that ends at a page's end, both follow that prefix.
        Returns the handle of the whole and the tree's pages, which replace the caller's.
        """
        if after is not None and (after.matched_len % self.page_size or after.node.detached):
            raise InvariantError("pages can only follow a whole page that is held")
        if after is None or after.node.parent is None:
            node = self._root(namespace)
        else:
            node = after.node
        key, size = token_key(token_ids), self._page_bytes
        if len(pages) != -(-len(key) // size):
            raise InvariantError(f"{len(pages)} pages given for {len(key) // TOKEN_BYTES} tokens")
        kept: list[int] = []
        for index, page in enumerate(pages):
            node = self._insert_page(node, key[index * size : (index + 1) * size], page)
            kept.append(node.page)
        node.last_use = self._clock
        if node.evictable:
            self._queue.push(node)
        self._queue.compact(self.num_cached)
        matched_len = len(key) // TOKEN_BYTES + (after.matched_len if after is not None else 0)
        return PrefixHandle(node, matched_len), kept

    def hot_pages(self, max_pages: int, namespace: str = "") -> list[HotPage]:
        """The pages of a namespace that were used most; parents before children."""
        root = self._roots.get(namespace)
        return [] if root is None else hottest(root, max_pages)

    # -- hints of future use -------------------------------------------------------------------

    def view(self) -> CacheView:
        """The tree as people see it; changes nothing."""
        return view_of(self._roots.values(), self._clock)

    def expect(self, handle: PrefixHandle, uses: int, steps: int) -> None:
        """Announces ``uses`` further uses of a prefix, the first in ``steps`` lookups."""
        node = handle.node
        if node.detached or node.parent is None or uses < 1:
            return
        next_use = float(self._clock + max(steps, 1))
        node.next_use = next_use if node.next_use is None else min(node.next_use, next_use)
        node.uses += uses
        node.dead_since = -1
        if node.evictable:
            self._queue.push(node)

    def withdraw(self, handle: PrefixHandle, uses: int) -> None:
        """Withdraws ``uses`` announced uses."""
        node = handle.node
        node.uses = max(node.uses - uses, 0)
        if not node.uses and node.next_use is not None:
            node.next_use = None
            if node.evictable:
                self._queue.push(node)

    def forget(self, handle: PrefixHandle, keep_len: int = 0) -> None:
        """Announces that a prefix won't be used again beyond its first ``keep_len`` tokens.

        Pages that others hold, expect or have extended keep their times.
        """
        node = handle.node
        while node.parent is not None and not node.detached and not node.locked:
            alone = all(child.dead for child in node.children.values())
            if not alone or node.next_use is not None or node.depth * self.page_size <= keep_len:
                return
            node.dead_since = max(self._clock, node.last_use)
            if node.evictable:
                self._queue.push(node)
            node = node.parent

    # -- invariants ----------------------------------------------------------------------------

    def check(self, owned: Iterable[int] = ()) -> None:
        """Raises InvariantError unless every page has exactly one owner and the tree is sound.

        ``owned`` are the pages that callers own.
        """
        owners = Counter(self.pool.free_pages())
        owners.update(owned)
        num_cached = num_locked = 0
        stack: list[Node] = [*self._roots.values(), *self._detached]
        while stack:
            node = stack.pop()
            if node.parent is not None:
                owners[node.page] += 1
                num_cached += 1
                num_locked += node.locked
            _check_node(node, self.page_size)
            stack.extend(node.children.values())
        wrong = [page for page in range(self.pool.num_pages) if owners[page] != 1]
        if wrong or len(owners) != self.pool.num_pages:
            raise InvariantError(f"pages without exactly one owner: {wrong[:10]}")
        if (num_cached, num_locked) != (self.num_cached, self._num_locked):
            raise InvariantError("the tree's page counts are wrong")

    # -- inside --------------------------------------------------------------------------------

    def _root(self, namespace: str) -> Node:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = Node(namespace.encode(), -1, None, self._clock)
        return root

    def _insert_page(self, parent: Node, key: bytes, page: int) -> Node:
        """The child of ``parent`` that has the tokens of ``key``: found, or made with ``page``."""
        child = parent.children.get(key)
        if child is None and len(key) < self._page_bytes:
            child = parent.extending_child(key)
        if child is not None:
            if child.page != page:
                self.pool.free((page,))
            return child
        shorter = parent.prefix_child(key)
        child = Node(key, page, parent, self._clock)
        parent.add_child(child)
        self.num_cached += 1
        if shorter is not None:
            self._supersede(shorter, child)
        return child

    def _supersede(self, shorter: Node, longer: Node) -> None:
        """Takes out a node all of whose tokens a sibling has; its page lives while it is held."""
        longer.last_use = max(longer.last_use, shorter.last_use)
        longer.next_use, longer.uses = shorter.next_use, shorter.uses
        assert shorter.parent is not None
        shorter.parent.remove_child(shorter)
        shorter.detached = True
        if shorter.locked:
            self._detached.add(shorter)
        else:
            self._free_page(shorter)

    def _free_page(self, node: Node) -> None:
        self.pool.free((node.page,))
        self.num_cached -= 1

    def _lock(self, node: Node) -> None:
        """Counts a node that has just become locked, and those above it that thereby do."""
        while node.parent is not None:
            self._num_locked += 1
            node = node.parent
            node.locked_children += 1
            if node.holds or node.locked_children > 1:
                return

    def _unlock(self, node: Node) -> None:
        """The reverse of ``_lock``; a leaf becomes evictable."""
        leaf = node
        while node.parent is not None:
            self._num_locked -= 1
            node = node.parent
            node.locked_children -= 1
            if node.locked:
                break
            if node.evictable:  # what was below it has been superseded, and then evicted
                self._queue.push(node)
        if leaf.detached:
            self._detached.remove(leaf)
            self._free_page(leaf)
        if leaf.evictable:
            self._queue.push(leaf)

    def _drop_if_idle(self, node: Node) -> None:
        """Removes an empty namespace."""
        if node.parent is None and not node.children:
            self._roots.pop(node.key.decode(), None)


def _check_node(node: Node, page_size: int) -> None:
    keys = node.sorted_keys
    if keys != sorted(node.children) or any(b.startswith(a) for a, b in pairwise(keys)):
        raise InvariantError("a node's children are out of order, or one is another's prefix")
    if node.locked_children < sum(child.locked for child in node.children.values()):
        raise InvariantError("a node doesn't know that one below it is held")
    full = node.num_tokens == page_size
    if node.parent is not None and (not node.key or (node.children and not full)):
        raise InvariantError("an empty page, or a page that isn't full with others after it")
