"""Page tables of running sequences: assigning, sharing and returning pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ramet.runtime.cache import PrefixHandle, RadixCache
from ramet.runtime.scheduler.batching.slots import Slots
from ramet.runtime.scheduler.sequence.sequence import NO_SLOT, Blocked, Sequence
from ramet.runtime.scheduler.sequence.shared_len import shared_len


@dataclass(frozen=True, slots=True)
class Start:
    """Where a waiting sequence can start: after a cached prefix, or within a donor's page.

    ``handle`` ends at the last whole page when ``donor`` has more of the next one than the cache.
    """

    handle: PrefixHandle
    donor: Sequence | None = None
    donated_len: int = 0


class PageTables:
    """Fills and empties the rows of ``slots.page_tables``."""

    def __init__(self, cache: RadixCache, slots: Slots) -> None:
        self._cache = cache
        self._slots = slots
        self._page_size = cache.page_size

    # -- starting ------------------------------------------------------------------------------

    def find_start(self, sequence: Sequence, running: Iterable[Sequence]) -> Start | Blocked:
        """The longest prefix to start from, unless waiting for a running sequence gives more."""
        limit = max(sequence.reusable_len, 0)
        wanted = sequence.token_ids[:limit]
        namespace = sequence.request.cache_salt
        handle = self._cache.match(wanted, namespace)
        whole = self._whole(handle)
        best_len, donor, blocked = handle.matched_len, None, None
        awaited_len = best_len + self._page_size - 1
        for other in running:
            if other.request.cache_salt != namespace or other.slot == NO_SLOT:
                continue
            prefilling = other.num_pending > 1
            if not prefilling and other.tree_len != whole.matched_len:
                continue
            shared = shared_len(wanted, other.known)
            ready = min(shared, other.num_computed) if other.copy_from is None else 0
            if shared > awaited_len and shared > other.num_computed:
                awaited_len, blocked = shared, Blocked(other, shared)
            if ready > best_len and other.tree_len == whole.matched_len:
                best_len, donor = ready, other
        if blocked is not None and blocked.until_len - best_len >= self._page_size:
            return blocked
        if donor is not None:
            return Start(whole, donor, best_len - whole.matched_len)
        return Start(handle)

    def assign_pages(self, sequence: Sequence, start: Start, headroom: int) -> bool:
        """Gives a waiting sequence a slot and pages for all its tokens, and its prefix.

        ``headroom`` pages must be left over; otherwise returns False and changes nothing. If one
        page is missing, the page that would only be copied from is released.
        """
        if self._try_assign(sequence, start, headroom):
            return True
        whole = Start(self._whole(start.handle))
        return whole != start and self._try_assign(sequence, whole, headroom)

    def _try_assign(self, sequence: Sequence, start: Start, headroom: int) -> bool:
        cache, size = self._cache, self._page_size
        handle = start.handle
        num_shared, tail_len = divmod(handle.matched_len, size)
        count = -(-sequence.num_tokens // size) - num_shared
        cache.hold(handle)
        if cache.num_available < count + headroom:
            cache.release(handle)
            return False
        try:
            self._slots.assign(sequence)
        except Exception:
            cache.release(handle)
            raise
        own = cache.allocate(count)
        assert own is not None
        shared = cache.use(handle)
        table = self._slots.page_tables[sequence.slot]
        table[:num_shared] = shared[:num_shared]
        table[num_shared : num_shared + count] = own
        sequence.num_pages = num_shared + count
        sequence.page_key = b""
        sequence.held = handle
        sequence.tree_len = num_shared * size
        sequence.num_computed = handle.matched_len + start.donated_len
        if start.donor is not None:
            source = self._slots.page_tables[start.donor.slot, num_shared]
            sequence.copy_from = int(source), start.donated_len
        elif tail_len:
            sequence.copy_from = shared[num_shared], tail_len
        return True

    def _whole(self, handle: PrefixHandle) -> PrefixHandle:
        """The part of a handle that ends with a whole page."""
        tail_len = handle.matched_len % self._page_size
        if not tail_len:
            return handle
        assert handle.node.parent is not None
        return PrefixHandle(handle.node.parent, handle.matched_len - tail_len)

    # -- running -------------------------------------------------------------------------------

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Makes room for the first ``num_tokens`` tokens; False, unchanged, if pages run out."""
        count = -(-num_tokens // self._page_size) - sequence.num_pages
        if count <= 0:
            return True
        own = self._cache.allocate(count)
        if own is None:
            return False
        table = self._slots.page_tables[sequence.slot]
        table[sequence.num_pages : sequence.num_pages + count] = own
        sequence.num_pages += count
        sequence.page_key = b""
        return True

    def publish(self, sequence: Sequence) -> None:
        """Gives the pages that have become full to the tree, so that others can start there."""
        whole_len = sequence.num_computed // self._page_size * self._page_size
        if whole_len == sequence.tree_len and sequence.copy_from is None:
            return
        assert sequence.held is not None
        handle = self._whole(sequence.held)
        if whole_len > sequence.tree_len:
            handle = self._insert(sequence, handle, whole_len)
        self._cache.hold(handle)
        self._cache.release(sequence.held)
        sequence.held = handle
        sequence.copy_from = None

    def page_key(self, sequence: Sequence) -> bytes:
        """Bytes that sort as the sequence's page table does."""
        if not sequence.page_key:
            pages = self._slots.page_tables[sequence.slot, : sequence.num_pages]
            sequence.page_key = pages.astype(">i4").tobytes()
        return sequence.page_key

    # -- leaving -------------------------------------------------------------------------------

    def return_pages(self, sequence: Sequence) -> PrefixHandle:
        """Takes back a sequence's pages: computed ones go to the cache, the rest is freed.

        Returns the handle of what it leaves in the cache, which is not held.
        """
        assert sequence.held is not None
        computed = sequence.num_computed if sequence.copy_from is None else sequence.tree_len
        handle = self._whole(sequence.held)
        table = self._slots.page_tables[sequence.slot]
        if computed > sequence.tree_len:
            handle = self._insert(sequence, handle, computed)
        num_kept = -(-computed // self._page_size)
        self._cache.free(table[num_kept : sequence.num_pages].tolist())
        self._cache.release(sequence.held)
        table[: sequence.num_pages] = -1
        self._slots.release(sequence)
        sequence.held = sequence.copy_from = None
        sequence.slot = NO_SLOT
        sequence.num_pages = sequence.tree_len = sequence.num_computed = 0
        sequence.page_key = b""
        return handle

    def owned(self, sequence: Sequence) -> list[int]:
        """The pages that are the sequence's own, for ``check()``."""
        if sequence.slot == NO_SLOT:
            return []
        table = self._slots.page_tables[sequence.slot]
        own: list[int] = table[sequence.tree_len // self._page_size : sequence.num_pages].tolist()
        return own

    def _insert(self, sequence: Sequence, after: PrefixHandle, until_len: int) -> PrefixHandle:
        """Gives the tree the sequence's tokens and pages from ``tree_len`` to ``until_len``."""
        first, last = sequence.tree_len // self._page_size, -(-until_len // self._page_size)
        table = self._slots.page_tables[sequence.slot]
        handle, kept = self._cache.insert(
            sequence.token_ids[sequence.tree_len : until_len],
            table[first:last].tolist(),
            sequence.request.cache_salt,
            after=after,
        )
        table[first:last] = kept
        sequence.tree_len = until_len // self._page_size * self._page_size
        sequence.page_key = b""
        return handle
