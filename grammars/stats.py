"""Memory and counts of a grammar compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GrammarStats:
    """Counts and memory of one compiler.

    Attributes:
        num_grammars: compiled grammars.
        num_bytes: approximate memory of the grammars, with their lexemes and cached masks.
        num_stored_bytes: size of the automata on disk.
        num_read: automata that were read from disk.
    """

    num_grammars: int = 0
    num_bytes: int = 0
    num_stored_bytes: int = 0
    num_read: int = 0
