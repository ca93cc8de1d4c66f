"""Shortest completions: the text that makes an unfinished output valid in the fewest bytes."""

from .search import FULL_WORK, CompletionSearch

__all__ = ["FULL_WORK", "CompletionSearch"]
