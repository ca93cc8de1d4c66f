"""A prefix that is kept for a program's later calls."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.runtime.cache import PrefixHandle


@dataclass(slots=True, eq=False)
class KeptPrefix:
    """The prefix of an ended call that later calls extend; ``handle`` is None once released.

    ``remaining`` later calls extend it (None: unknown). Other programs, and other runs of this one,
    may reuse its first ``reusable_len`` tokens. A prompt whose first ``length`` tokens have this
    ``digest`` extends it.
    """

    node_id: str
    handle: PrefixHandle | None
    remaining: int | None
    reusable_len: int
    tool: str
    since: float
    length: int
    digest: bytes
