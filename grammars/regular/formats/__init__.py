"""The string formats of JSON Schema as automata."""

from .by_name import FORMAT_NAMES, format_dfa, string_format

__all__ = ["FORMAT_NAMES", "format_dfa", "string_format"]
