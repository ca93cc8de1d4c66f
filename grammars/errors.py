"""Errors of this package. A constraint is compiled exactly, or refused by one of these."""

from __future__ import annotations


class ConstraintError(ValueError):
    """A constraint that can't be honoured exactly.

    Attributes:
        path: where in the constraint: a JSON pointer into the schema (``""`` is its root), or
            ``offset 12`` in a regex or an EBNF text.
        keyword: the keyword or construct that is at fault, such as ``pattern`` or ``lookbehind``.
        reason: what is wrong, in words for the constraint's author.
    """

    def __init__(self, path: str, keyword: str, reason: str) -> None:
        super().__init__(f"{reason} (at {path or 'the root'}, keyword {keyword!r})")
        self.path = path
        self.keyword = keyword
        self.reason = reason

    def __reduce__(self) -> tuple[type[ConstraintError], tuple[str, str, str]]:
        return type(self), (self.path, self.keyword, self.reason)


class GrammarTooComplexError(ConstraintError):
    """A constraint that needs more time, states or memory than ``CompileLimits`` allows."""


class EmptyConstraintError(ConstraintError):
    """A sound constraint that no text matches, such as a minimum above its maximum."""
