"""Token counts of one call, summed over its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ramet.runtime.api.events import Usage


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Counts over all choices. A prompt counts once, whatever its number of choices; its cached
    tokens are those that the first choice found cached."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    forced_tokens: int
    completion_forced_tokens: int
    reasoning_tokens: int = 0

    @classmethod
    def from_usages(
        cls, usages: Sequence[Usage], num_choices: int, reasoning_tokens: int = 0
    ) -> CallUsage:
        """Sums ``usages``, which has ``num_choices`` entries for each prompt, ordered by prompt."""
        groups = [usages[i : i + num_choices] for i in range(0, len(usages), num_choices)]
        return cls(
            prompt_tokens=sum(group[0].prompt_tokens for group in groups),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            cached_tokens=sum(min(usage.cached_tokens for usage in group) for group in groups),
            forced_tokens=sum(usage.forced_tokens for usage in usages),
            completion_forced_tokens=sum(usage.completion_forced_tokens for usage in usages),
            reasoning_tokens=reasoning_tokens,
        )

    def as_openai(self) -> dict[str, Any]:
        """OpenAI's ``usage`` of chat and completions; the counts of forced tokens are
        Ramet's own."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {
                "reasoning_tokens": self.reasoning_tokens,
                "forced_tokens": self.forced_tokens,
                "completion_forced_tokens": self.completion_forced_tokens,
            },
        }
