"""Shortest completions: the text that makes an unfinished output valid in the fewest bytes."""

from .bounded import complete_by_tokens
from .search import FULL_WORK, CompletionSearch

__all__ = ["FULL_WORK", "CompletionSearch", "complete_by_tokens"]
