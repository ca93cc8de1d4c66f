"""The page pool: which pages are free. Keys and values themselves are the runner's."""

from __future__ import annotations

from collections.abc import Iterable

from ramet.runtime.api.errors import InvariantError


class PagePool:
    """Hands out page ids ``0 .. num_pages - 1``, each to one owner at a time.

    A page holds the keys and values of ``page_size`` tokens. Pages freed last are handed out
    first, as they are the likeliest to be in the processor's cache.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        if num_pages < 1 or page_size < 1:
            raise ValueError("a pool needs at least one page, of at least one token")
        self.num_pages = num_pages
        self.page_size = page_size
        self._free = list(range(num_pages - 1, -1, -1))
        self._is_free = bytearray(b"\x01" * num_pages)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def allocate(self, count: int) -> list[int]:
        """Takes ``count`` free pages; the caller has made sure that there are as many."""
        if count > len(self._free):
            raise InvariantError(f"{count} pages wanted, {len(self._free)} free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._is_free[page] = 0
        return pages

    def free(self, pages: Iterable[int]) -> None:
        """Takes pages back; InvariantError for a page that is free already."""
        for page in pages:
            if self._is_free[page]:
                raise InvariantError(f"page {page} is freed twice")
            self._is_free[page] = 1
            self._free.append(page)

    def free_pages(self) -> frozenset[int]:
        """The free pages, for ``check()``."""
        return frozenset(self._free)
