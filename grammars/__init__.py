"""Constraints on a text, compiled to token masks: ``ramet.grammars``."""

from .compile import GrammarCompiler, compile_constraint
from .constraints import Choice, Constraint, Ebnf, JsonObject, JsonSchema, Regex
from .errors import ConstraintError, GrammarTooComplexError
from .grammar import Grammar, MatchResult
from .limits import CompileLimits
from .matcher import Matcher
from .vocabulary import Vocabulary

__all__ = [
    "Choice",
    "CompileLimits",
    "Constraint",
    "ConstraintError",
    "Ebnf",
    "Grammar",
    "GrammarCompiler",
    "GrammarTooComplexError",
    "JsonObject",
    "JsonSchema",
    "MatchResult",
    "Matcher",
    "Regex",
    "Vocabulary",
    "compile_constraint",
]
