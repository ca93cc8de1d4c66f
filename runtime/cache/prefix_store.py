"""Hot prefixes on disk, so that the cache is warm after a restart.

One file a model and page format. It begins with a line of JSON; then, page after page, parents
first: parent index and number of tokens (int32 each), token ids, keys and values as the runner
stores them, and a digest of all that. Only prefixes without a salt are stored. A file is ignored
with a warning if it is of another model, or if another user may have written it; a damaged one is
used up to the first wrong page. The next ``save`` replaces it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.batch import PageStorage
from ramet.runtime.api.errors import InvariantError
from ramet.runtime.cache.hot_pages import HotPage
from ramet.runtime.cache.node import PrefixHandle
from ramet.runtime.cache.radix_cache import RadixCache
from ramet.trusted_files import check_folder, make_folder, open_trusted

logger = logging.getLogger("ramet.cache")

_FORMAT = 1
_DIGEST_BYTES = 16
_HEAD = struct.Struct("<ii")


class PrefixStore:
    """Saves and restores a cache's hot prefixes.

    Args:
        folder: where the file is; made if it isn't there.
        fingerprint: identifies the model and how its runner computes.
        max_bytes: the most that the file may take.
    """

    def __init__(self, folder: str | Path, fingerprint: str, max_bytes: int = 128 << 20) -> None:
        self._folder = Path(folder)
        self._fingerprint = fingerprint
        self._max_bytes = max_bytes
        name = hashlib.blake2b(fingerprint.encode(), digest_size=8).hexdigest()
        self.path = self._folder / f"prefixes-{name}.bin"

    def check_writable(self) -> bool:
        """Makes the folder and tries to write to it; logs a warning if that fails.

        Called at the start, so that the warning comes before there is something to lose.
        """
        probe = self.path.with_suffix(f".{os.getpid()}.probe")
        try:
            make_folder(self._folder, mode=0o700)
            check_folder(self._folder)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            logger.warning("prefixes can't be stored in %s: %s", self._folder, error)
            return False
        return True

    def save(self, cache: RadixCache, storage: PageStorage) -> int:
        """Writes the hottest pages; returns how many. A write error is logged, not raised."""
        page_bytes = len(storage.read_page(0))
        pages = cache.hot_pages(self._max_bytes // (page_bytes + 8 * cache.page_size))
        part = self.path.with_suffix(f".{os.getpid()}.part")
        try:
            make_folder(self._folder, mode=0o700)
            check_folder(self._folder)
            with open(part, "wb", opener=_open_private) as file:
                self._write(file, pages, storage, cache.page_size, page_bytes)
            part.replace(self.path)
        except OSError as error:
            logger.warning("prefixes were not stored in %s: %s", self._folder, error)
            with contextlib.suppress(OSError):
                part.unlink()
            return 0
        return len(pages)

    def load(self, cache: RadixCache, storage: PageStorage, max_pages: int) -> int:
        """Puts stored pages into an idle cache, at most ``max_pages``; returns how many."""
        handles: list[PrefixHandle] = []
        try:
            with open_trusted(self.path) as file:
                page_bytes = self._read_header(file, cache.page_size)
                for parent, token_ids, data in _read_pages(file, page_bytes, cache.page_size):
                    if len(handles) == max_pages:
                        break
                    after = None if parent < 0 else handles[parent]
                    handles.append(_insert(cache, storage, token_ids, data, after))
        except FileNotFoundError:
            return 0
        except OSError as error:
            logger.warning("%s is ignored: %s", self.path, error)
        except (ValueError, IndexError, InvariantError, struct.error) as error:
            logger.warning("%s is ignored from the first damaged page on: %s", self.path, error)
        for handle in handles:
            cache.release(handle)
        return len(handles)

    def _write(
        self,
        file: BinaryIO,
        pages: list[HotPage],
        storage: PageStorage,
        page_size: int,
        page_bytes: int,
    ) -> None:
        header = {
            "format": _FORMAT,
            "fingerprint": self._fingerprint,
            "page_size": page_size,
            "page_bytes": page_bytes,
        }
        file.write(json.dumps(header).encode() + b"\n")
        for page in pages:
            ids = page.token_ids.astype("<i4").tobytes()
            record = _HEAD.pack(page.parent, len(page.token_ids)) + ids
            record += storage.read_page(page.page)
            file.write(record + _digest(record))

    def _read_header(self, file: BinaryIO, page_size: int) -> int:
        """Bytes per page; ValueError if the file is not of this model."""
        header = json.loads(file.readline(4096))
        if not isinstance(header, dict) or header.get("format") != _FORMAT:
            raise ValueError("it is of another format")
        if header.get("fingerprint") != self._fingerprint or header.get("page_size") != page_size:
            raise ValueError("it is of another model, or another page size")
        size = header.get("page_bytes")
        if not isinstance(size, int) or not 0 < size < 1 << 30:
            raise ValueError("its header is damaged")
        return size


def _open_private(path: str, flags: int) -> int:
    """Opens a file that only the user may read and write: it holds users' prompts."""
    return os.open(path, flags, 0o600)


def _read_pages(
    file: BinaryIO, page_bytes: int, page_size: int
) -> Iterator[tuple[int, npt.NDArray[np.int32], bytes]]:
    """Parent, token ids and content of each page; ValueError at the first that is damaged."""
    while head := file.read(_HEAD.size):
        parent, num_tokens = _HEAD.unpack(head)
        if not 0 < num_tokens <= page_size:
            raise ValueError("a page has an impossible number of tokens")
        body = file.read(4 * num_tokens + page_bytes)
        if file.read(_DIGEST_BYTES) != _digest(head + body):
            raise ValueError("a page is damaged")
        ids = np.frombuffer(body[: 4 * num_tokens], "<i4").astype(np.int32)
        yield parent, ids, body[4 * num_tokens :]


def _insert(
    cache: RadixCache,
    storage: PageStorage,
    token_ids: npt.NDArray[np.int32],
    data: bytes,
    after: PrefixHandle | None,
) -> PrefixHandle:
    """Puts a page into the tree, and holds it."""
    pages = cache.allocate(1)
    if pages is None:
        raise ValueError("there are more pages than the cache has")
    try:
        storage.write_page(pages[0], data)
        handle, _ = cache.insert(token_ids, pages, after=after)
    except (ValueError, InvariantError):
        cache.free(pages)
        raise
    cache.hold(handle)
    return handle


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
