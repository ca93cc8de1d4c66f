"""Verifies draft tokens: speculative decoding keeps those that would have been sampled anyway."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Tokens

from ramet.runtime.scheduler.commit.output import End
from ramet.runtime.scheduler.sequence.sequence import Sequence


def verify_draft(
    sequence: Sequence, draft: Tokens[int], advance: Callable[[int], End | None]
) -> tuple[int, End | None]:
    """Accepts sampled tokens as long as the tokens before them equal the draft's.

    The step sampled a token after each prefix of the draft. A sample counts if the sequence's own
    tokens, sampled or forced, are the prefix that it was sampled after.

    Args:
        advance: appends the token sampled after the given number of draft tokens, and the text
            forced after it; returns the sequence's end, if it ends. The token may be late.

    Returns: the number of accepted draft tokens, and the sequence's end.
    """
    start = sequence.num_tokens
    offset = 0
    while True:
        end = advance(offset)
        limit = min(sequence.num_tokens, start + len(draft))
        while (
            sequence.num_computed < limit
            and sequence.token_ids[sequence.num_computed] == draft[sequence.num_computed - start]
        ):
            sequence.num_computed += 1
        offset = sequence.num_tokens - start
        is_late = sequence.late_draw is not None
        if end is not None or is_late or sequence.num_computed < sequence.num_tokens:
            return sequence.num_computed - start, end
