"""How much a constraint may cost before it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

from .regular_limits import RegularLimits


@dataclass(frozen=True)
class CompileLimits:
    """Bounds on one grammar. Each ends in ``GrammarTooComplexError``, never in a hang.

    Attributes:
        max_seconds: time to compile.
        max_states: lexeme states of one grammar while it is used, 1 KiB each; those of grammars
            that share them count together.
        max_contexts: contexts of one grammar while it is used.
        max_depth: nesting of a schema's text, and of the values that it may generate.
        max_literal_bytes: bytes of all strings of one enum, or of one object's keys.
        max_schema_nodes: subschemas of a schema and of the documents it refers to.
        max_branches: cases that one decision about a combination of subschemas may look at.
        max_mask_bytes: memory for ready parts of masks, of one grammar or of those that share them.
        regular: bounds on each regular language.
    """

    max_seconds: float = 20.0
    max_states: int = 400_000
    max_contexts: int = 1_000_000
    max_depth: int = 200
    max_literal_bytes: int = 4_000_000
    max_schema_nodes: int = 200_000
    max_branches: int = 20_000
    max_mask_bytes: int = 32 << 20
    regular: RegularLimits = field(default_factory=RegularLimits)
