"""Matches texts against a constraint without a model: the vocabulary is the 256 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from ramet.grammars.constraints import Constraint, Ebnf, Regex
from ramet.runtime.api.errors import InvalidConstraintError

if TYPE_CHECKING:
    from ramet.grammars import GrammarCompiler

_EXCERPT_LEN = 24
"""Characters of a regex or grammar that an error shows on each side of the fault."""


@dataclass(frozen=True)
class MatchOutcome:
    """Whether a text matches: true in an ``if`` when it does.

    Attributes:
        matched: the whole text is allowed.
        offset: the first wrong byte, or the text's length where it ends too early.
        expected: what could have stood there, for people.
    """

    matched: bool
    offset: int
    expected: str = ""

    def __bool__(self) -> bool:
        return self.matched


@cache
def _compiler() -> GrammarCompiler:
    from ramet.grammars import GrammarCompiler, Vocabulary  # compiled code is loaded when needed

    tokens = [bytes([byte]) for byte in range(256)]
    return GrammarCompiler(Vocabulary.from_tokens([*tokens, None], eos_ids={256}), capacity=256)


def match_text(constraint: Constraint, text: str) -> MatchOutcome:
    """Whether the whole text matches, or the first wrong byte and what was expected.

    Raises:
        ConstraintError: the constraint can't be honoured exactly.
    """
    result = _compiler().compile(constraint).match(text)
    if result.accepted:
        return MatchOutcome(True, len(text.encode()))
    return MatchOutcome(False, result.offset or 0, result.expected)


def is_compiled(constraint: Constraint) -> bool:
    """Whether ``match_text`` has no grammar to compile for a constraint."""
    return bool(_compiler.cache_info().currsize) and _compiler().find(constraint) is not None


def check_constraint(constraint: Constraint, what: str) -> None:
    """Refuses a constraint that no engine of Ramet's could honour, as the argument ``what``.

    Compiles it, which may take seconds. One that is valid and large is left to the engine, whose
    limits may be wider.

    Raises:
        InvalidConstraintError: names the argument, and the place in it.
    """
    from ramet.grammars import ConstraintError, GrammarTooComplexError

    try:
        _compiler().compile(constraint)
    except GrammarTooComplexError:
        return
    except ConstraintError as error:
        refused = InvalidConstraintError(str(error), pointer=error.path, reason=error.reason)
        raise refused_constraint(refused, constraint, what) from error


def refused_constraint(
    error: InvalidConstraintError, constraint: Constraint | None, what: str
) -> InvalidConstraintError:
    """The error with the name of the argument, and the part of a regex or grammar at fault."""
    text = None
    if isinstance(constraint, Regex):
        text = constraint.pattern
    elif isinstance(constraint, Ebnf):
        text = constraint.grammar
    where = "" if text is None else f", in {_excerpt(text, error.pointer)}"
    return InvalidConstraintError(
        f"{what}: {error.message}{where}",
        param=what,
        code=error.code,
        pointer=error.pointer,
        reason=error.reason,
    )


def _excerpt(text: str, place: str) -> str:
    """The text around ``offset 12``, shortened."""
    offset = int(place.removeprefix("offset ")) if place.startswith("offset ") else 0
    begin, end = max(0, offset - _EXCERPT_LEN), offset + _EXCERPT_LEN
    before, after = "..." if begin else "", "..." if end < len(text) else ""
    return f"{before}{text[begin:end]!r}{after}"
