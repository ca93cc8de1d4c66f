"""Whether two regular constraints accept the same texts."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal

from ramet.grammars.constraints import Choice, Regex
from ramet.grammars.errors import ConstraintError
from ramet.grammars.limits import CompileLimits
from ramet.grammars.regular import Dfa

from .languages import accepts, disagreement, language_of
from .product_search import Work, shortest_text


@dataclass(frozen=True)
class LanguageDifference:
    """A text, with the fewest bytes, that one of two constraints accepts.

    Attributes:
        example: the text.
        accepted_by: which of the two accepts it.
    """

    example: str
    accepted_by: Literal["first", "second"]


def compare_languages(
    first: Regex | Choice,
    second: Regex | Choice,
    *,
    max_seconds: float = 5.0,
    limits: CompileLimits | None = None,
) -> LanguageDifference | None:
    """A shortest text on which two regular constraints differ; None if they are equal.

    Raises:
        ConstraintError: one of them is wrong in itself; its ``path`` begins with "first" or
            "second".
        GrammarTooComplexError: the comparison takes more time or states than allowed.
    """
    limits = limits or CompileLimits()
    work = Work(max_seconds)
    languages: list[Dfa] = []
    for name, constraint in (("first", first), ("second", second)):
        try:
            languages.append(language_of(constraint, limits, work))
        except ConstraintError as error:
            place = f"{name}: {error.path}" if error.path else name
            raise type(error)(place, error.keyword, error.reason) from None
    if languages[0] == languages[1]:
        return None
    text = shortest_text(languages[0], languages[1], operator.ne, work)
    is_in = [accepts(constraint, text or "", limits) for constraint in (first, second)]
    if text is None or is_in[0] == is_in[1]:
        raise disagreement(text or "")
    return LanguageDifference(text, "first" if is_in[0] else "second")
