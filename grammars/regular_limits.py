"""How large an automaton may grow before its constraint is refused."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.grammars.errors import GrammarTooComplexError


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


DEFAULT_LIMITS = RegularLimits()


def too_complex(what: str, limits: RegularLimits) -> GrammarTooComplexError:
    """The error for a language that outgrows ``limits``."""
    return GrammarTooComplexError(
        "", "regex", f"{what} outgrows the limit of {limits.max_states} automaton states"
    )
