"""The lexeme that follows a property or an item."""

from __future__ import annotations

from functools import lru_cache

from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.text.lexemes import AfterLexeme


@lru_cache(maxsize=1024)
def after_lexeme(bracket: int, layout: Layout) -> AfterLexeme:
    """A comma or a bracket, with white space before it."""
    return AfterLexeme(bracket, layout.before_comma(), layout.close())
