"""The regular languages of constraints and parts; checks of examples by compiled grammars."""

from __future__ import annotations

from functools import cache

from ramet.grammars.compile import compile_constraint
from ramet.grammars.constraints import (
    Choice,
    Constraint,
    FixedText,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
)
from ramet.grammars.constraints.serialize import check_fields
from ramet.grammars.errors import ConstraintError, EmptyConstraintError, GrammarTooComplexError
from ramet.grammars.limits import CompileLimits
from ramet.grammars.masks.vocabulary import Vocabulary
from ramet.grammars.regular import Dfa, concat, literal, literals, regex_dfa, repeat

from .product_search import Work

_MAX_DEPTH = 60


def language_of(part: Part, limits: CompileLimits, work: Work, depth: int = 0) -> Dfa:
    """The texts of a constraint or part that is regular.

    Raises:
        ConstraintError: it isn't, or it is wrong in itself.
        GrammarTooComplexError: over the limits, or the time for the work has passed.
    """
    work.check(0)
    if depth > _MAX_DEPTH:
        raise ConstraintError("", part.kind, "parts nest too deeply")
    bounds = limits.regular
    match part:
        case Regex(pattern, dialect, classes):
            check_fields(part)
            narrow = classes == "ascii"
            return regex_dfa(pattern, dialect=dialect, narrow=narrow, limits=bounds)
        case Choice(choices):
            check_fields(part)
            return literals(choices, bounds)
        case FixedText(text):
            return literal(text)
        case Series(parts):
            return concat(*(language_of(p, limits, work, depth + 1) for p in parts), limits=bounds)
        case Tag(begin, content, end):
            inner = language_of(content, limits, work, depth + 1)
            return concat(literal(begin), inner, literal(end), limits=bounds)
        case Repeated(inner_part, minimum, maximum):
            inner = language_of(inner_part, limits, work, depth + 1)
            return repeat(inner, minimum, maximum, bounds)
    raise ConstraintError("", part.kind, f"a {part.kind} is not compared: it isn't a regular part")


def accepts(part: Part, text: str, limits: CompileLimits) -> bool:
    """Whether the compiled grammar of a constraint or part matches a text."""
    whole: Constraint = part if isinstance(part, Regex | Choice) else StructuralTag(part)
    try:
        return compile_constraint(whole, byte_vocabulary(), limits=limits).match(text).accepted
    except EmptyConstraintError:
        return False


def disagreement(text: str) -> GrammarTooComplexError:
    """The refusal of an example that the compiled grammar doesn't confirm."""
    return GrammarTooComplexError(
        "", "comparison", f"the compiled grammar doesn't confirm the example {text!r}"
    )


@cache
def byte_vocabulary() -> Vocabulary:
    """The vocabulary of the 256 bytes."""
    tokens = [bytes([byte]) for byte in range(256)]
    return Vocabulary.from_tokens([*tokens, None], eos_ids={256})
