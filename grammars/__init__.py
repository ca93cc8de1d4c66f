"""Constraints on a text, compiled to token masks: ``ramet.grammars``."""

from .compile import GrammarCompiler, GrammarStats, compile_constraint
from .constraint_json import constraint_from_json, constraint_to_json
from .constraints import (
    AnyOf,
    Choice,
    Constraint,
    Ebnf,
    FixedText,
    FreeText,
    JsonObject,
    JsonSchema,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)
from .errors import ConstraintError, EmptyConstraintError, GrammarTooComplexError
from .from_types import json_schema_of
from .grammar import Grammar, MatchResult
from .limits import CompileLimits
from .matcher import Matcher
from .regular.store import AutomatonStore
from .vocabulary import Vocabulary

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
    "MatchResult",
    "Matcher",
    "Part",
    "Regex",
    "Repeated",
    "Series",
    "StructuralTag",
    "Tag",
    "TriggeredTags",
    "Vocabulary",
    "compile_constraint",
    "constraint_from_json",
    "constraint_to_json",
    "json_schema_of",
]
