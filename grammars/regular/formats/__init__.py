"""The string formats of JSON Schema: as automata, and by decoding a whole string."""

from .by_name import FORMAT_NAMES, format_dfa, string_format
from .decoded import decoded_members

__all__ = ["FORMAT_NAMES", "decoded_members", "format_dfa", "string_format"]
