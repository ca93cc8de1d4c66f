"""Bounds on what a constraint may cost. What exceeds them is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from .errors import GrammarTooComplexError


@dataclass(frozen=True)
class RegularLimits:
    """Bounds on the compilation of one regular language.

    Attributes:
        max_states: states of any automaton on the way, before minimisation.
        max_work: elementary steps of one subset construction; a step is a few nanoseconds, so
            the default is a second or two. Counted, not timed: the answer is the same everywhere.
        max_table: entries of any transition table (states times byte classes), 4 bytes each.
    """

    max_states: int = 50_000
    max_work: int = 100_000_000
    max_table: int = 16_000_000

    def states_for(self, num_classes: int) -> int:
        """The states that fit both bounds when there are ``num_classes`` byte classes."""
        return max(1, min(self.max_states, self.max_table // max(1, num_classes)))


@dataclass(frozen=True)
class CompileLimits:
    """Bounds on one grammar. Each ends in ``GrammarTooComplexError``, never in a hang.

    Attributes:
        max_seconds: CPU time to compile.
        max_states: lexeme states of one grammar while it is used, 1 KiB each; those of grammars
            that share them count together.
        max_contexts: contexts of one grammar while it is used.
        max_depth: nesting of a schema's text, and of the values that it may generate.
        max_literal_bytes: bytes of all strings of one enum, or of one object's keys.
        max_schema_nodes: subschemas of a schema and of the documents it refers to.
        max_branches: cases that one decision about a combination of subschemas may look at.
        max_mask_bytes: memory for ready parts of masks, of one grammar or of those that share them.
        regular: bounds on each regular language.
    """

    max_seconds: float = 20.0
    max_states: int = 400_000
    max_contexts: int = 1_000_000
    max_depth: int = 200
    max_literal_bytes: int = 4_000_000
    max_schema_nodes: int = 200_000
    max_branches: int = 20_000
    max_mask_bytes: int = 32 << 20
    regular: RegularLimits = field(default_factory=RegularLimits)


DEFAULT_LIMITS = RegularLimits()


def too_complex(what: str, limits: RegularLimits) -> GrammarTooComplexError:
    """The error for a language that outgrows ``limits``."""
    return GrammarTooComplexError(
        "", "regex", f"{what} outgrows the limit of {limits.max_states} automaton states"
    )
