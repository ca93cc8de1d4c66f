"""Shortest completions: the text that makes an unfinished output valid in the fewest bytes."""

from .search import CompletionSearch

__all__ = ["CompletionSearch"]
