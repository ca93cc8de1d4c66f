"""The grammars of custom tools, whose input is a text."""

from __future__ import annotations

from typing import Literal

from ramet.grammars.constraints import Ebnf, Regex
from ramet.runtime.server.protocol.base import ApiModel


class TextGrammar(ApiModel):
    """A Lark grammar or a regular expression that the input is held to."""

    syntax: Literal["lark", "regex"]
    definition: str

    def constraint(self) -> Ebnf | Regex:
        """The constraint of the text."""
        if self.syntax == "lark":
            return Ebnf(self.definition, dialect="lark")
        return Regex(self.definition)
