"""Trying a constraint on a text, with no model: the vocabulary is the 256 bytes."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from ramet.grammars.constraints import Constraint
from ramet.lang.patterns import MatchOutcome

if TYPE_CHECKING:
    from ramet.grammars import Vocabulary


@cache
def _byte_vocabulary() -> Vocabulary:
    from ramet.grammars import Vocabulary

    return Vocabulary.from_tokens([bytes([byte]) for byte in range(256)] + [None], eos_ids={256})


def match_text(constraint: Constraint, text: str) -> MatchOutcome:
    """Whether the whole text matches, or the first wrong byte and what was expected.

    Raises:
        ConstraintError: the constraint can't be honoured exactly.
    """
    from ramet.grammars import compile_constraint  # compiled code is loaded when it is needed

    result = compile_constraint(constraint, _byte_vocabulary()).match(text)
    if result.accepted:
        return MatchOutcome(True, len(text.encode()))
    return MatchOutcome(False, result.offset or 0, result.expected)
