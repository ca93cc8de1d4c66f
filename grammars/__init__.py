"""Constraints on a text, compiled to token masks: ``ramet.grammars``.

Constraints are plain values; their compiler is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .constraints import (
    AnyOf,
    Choice,
    Constraint,
    Ebnf,
    FixedText,
    FreeText,
    JsonObject,
    JsonSchema,
    JsonString,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)
from .constraints.serialize import constraint_from_json, constraint_to_json
from .constraints.writing import for_writing
from .errors import ConstraintError, EmptyConstraintError, GrammarTooComplexError
from .limits import CompileLimits
from .stats import GrammarStats

if TYPE_CHECKING:
    from .comparison import LanguageDifference, OverlapReport, compare_languages, find_overlaps
    from .compile import GrammarCompiler, RegularBackend, compile_constraint
    from .constraints.from_types import json_schema_of
    from .grammar import Grammar, MatchResult
    from .masks.vocabulary import Vocabulary
    from .matcher import Matcher
    from .regular.automata.store import AutomatonStore

__all__ = [
    "AnyOf",
    "AutomatonStore",
    "Choice",
    "CompileLimits",
    "Constraint",
    "ConstraintError",
    "Ebnf",
    "EmptyConstraintError",
    "FixedText",
    "FreeText",
    "Grammar",
    "GrammarCompiler",
    "GrammarStats",
    "GrammarTooComplexError",
    "JsonObject",
    "JsonSchema",
    "JsonString",
    "LanguageDifference",
    "MatchResult",
    "Matcher",
    "OverlapReport",
    "Part",
    "Regex",
    "RegularBackend",
    "Repeated",
    "Series",
    "StructuralTag",
    "Tag",
    "TriggeredTags",
    "Vocabulary",
    "compare_languages",
    "compile_constraint",
    "constraint_from_json",
    "constraint_to_json",
    "find_overlaps",
    "for_writing",
    "json_schema_of",
]

_HOMES = {
    "AutomatonStore": ".regular.automata.store",
    "Grammar": ".grammar",
    "GrammarCompiler": ".compile",
    "LanguageDifference": ".comparison",
    "MatchResult": ".grammar",
    "Matcher": ".matcher",
    "OverlapReport": ".comparison",
    "RegularBackend": ".compile",
    "Vocabulary": ".masks.vocabulary",
    "compare_languages": ".comparison",
    "compile_constraint": ".compile",
    "find_overlaps": ".comparison",
    "json_schema_of": ".constraints.from_types",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
