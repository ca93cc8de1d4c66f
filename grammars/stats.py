"""What a compiler tells about itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrammarStats:
    """What a compiler remembers.

    Attributes:
        num_grammars: compiled grammars.
        num_bytes: about the memory that they take, with their lexemes and parts of masks.
        num_stored_bytes: automata on disk.
        num_read: automata that were read from disk.
    """

    num_grammars: int = 0
    num_bytes: int = 0
    num_stored_bytes: int = 0
    num_read: int = 0
