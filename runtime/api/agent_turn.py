"""What a turn of an agent loop may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ramet.grammars.constraints import Constraint


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurn:
    """One turn of an agent loop.

    Attributes:
        functions: the tools as OpenAI's ``function`` objects.
        max_calls: most calls of the turn; 0: it can only be an answer.
        must_call: an answer is not allowed.
        answer: constraint of an answer, whose text is then JSON; None: any text.
    """

    functions: tuple[Mapping[str, Any], ...]
    max_calls: int
    must_call: bool = False
    answer: Constraint | None = None
