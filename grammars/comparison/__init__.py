"""Overlaps between a constraint's alternatives, and equality of two regular constraints."""

from .equality import LanguageDifference, compare_languages
from .overlaps import NotCompared, Overlap, OverlapReport, find_overlaps

__all__ = [
    "LanguageDifference",
    "NotCompared",
    "Overlap",
    "OverlapReport",
    "compare_languages",
    "find_overlaps",
]
