"""Stop tokens and stop strings of constrained outputs.

Such an output may end only where its text is valid. A stop token or stop string elsewhere, inside a
JSON value or a tool call, is text like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Texts

from ramet.runtime.scheduler.sequence.sequence import Sequence


class StopConditions:
    """Says where an output may stop; ``texts`` are every token's bytes.

    In both methods the matcher has accepted ``num_ahead`` tokens after the one in question.
    """

    def __init__(self, texts: Texts[bytes]) -> None:
        self._texts = texts

    def is_stop_token(
        self, sequence: Sequence, token_id: int, *, num_ahead: int = 0, num_new: int = 0
    ) -> bool:
        """Whether a token ends the output; ``num_new`` tokens, it among them, aren't appended."""
        params = sequence.params
        if token_id not in params.stop_token_ids:
            return False
        if sequence.num_output + num_new < params.min_tokens:
            return False
        if sequence.matcher is None or sequence.request.stop_anywhere:
            return True
        num_back = num_ahead + (not params.include_stop_str_in_output)
        return sequence.matcher.could_end(num_back, b"")

    def may_stop(self, sequence: Sequence, num_ahead: int) -> Callable[[int], bool] | None:
        """Whether an output may end a number of bytes before its last token's end; None: always."""
        matcher = sequence.matcher
        if matcher is None or not sequence.params.stop or sequence.request.stop_anywhere:
            return None

        def may_stop(num_bytes: int) -> bool:
            num_back, text = 0, b""
            while num_bytes > 0 and num_back < sequence.num_output:
                num_back += 1
                text = self._texts[int(sequence.output[-num_back])]
                num_bytes -= len(text)
            head = text[:-num_bytes] if num_bytes < 0 else b""
            return matcher.could_end(num_ahead + num_back, head)

        return may_stop
