"""A prefix that a program's ended call leaves for its later calls."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.runtime.cache import PrefixHandle


@dataclass(slots=True, eq=False)
class KeptPrefix:
    """What a call has left and later ones will extend; ``handle`` is None once given up.

    ``remaining`` later calls extend it (None: unknown). Its first ``lasting_len`` tokens may be of
    use to other programs, and to other runs of this one. A prompt whose first ``length`` tokens
    have this ``digest`` extends it.
    """

    node_id: str
    handle: PrefixHandle | None
    remaining: int | None
    lasting_len: int
    tool: str
    since: float
    length: int
    digest: bytes
