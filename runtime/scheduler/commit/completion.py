"""Outputs that end valid within ``max_tokens``.

At each position of such an output, a completion is known that fits into the remaining tokens. A
drawn token after which none fits is replaced by the completion of the position before it, which
ends the output. So there is no dead end, and up to that token the output is unchanged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from ramet.grammars.errors import GrammarTooComplexError
from ramet.runtime.api.errors import InvalidConstraintError, InvalidParameterError
from ramet.runtime.api.request import FIRST_COMPLETION_WORK, PARAMS_AGAINST_COMPLETION
from ramet.runtime.scheduler.sequence.sequence import Matcher, Sequence
from ramet.runtime.tokenizer.tokenizer import Tokenizer

_CACHE_LEN = 4096

_STEP_WORK = 300
"""Lexeme states that the search after a token may look at: mostly below a millisecond of work, at
worst some 20 ms, once for each position."""

_AMPLE_LEN = 64
"""With so many more tokens left than the last completion has bytes, an output may go on for a while
before its completion is known."""

Pieces = tuple[bytes | int, ...]
"""Texts, and ids of special tokens."""


class Completions:
    """Encodes shortest completions in the tokenizer's own tokens; caches recent ones."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._encoded: OrderedDict[Pieces, list[int]] = OrderedDict()

    def begin(self, sequence: Sequence, matcher: Matcher) -> Pieces | None:
        """The completion of an output that has not begun; None if it need not be complete.

        Raises:
            InvalidParameterError: the shortest valid output takes more tokens than there are.
            InvalidConstraintError: no completion is found, or the tokenizer can't spell it.
        """
        request, num_left = sequence.request, sequence.num_left
        if request.complete is False:
            return None
        if any(getattr(request.params, name) for name in PARAMS_AGAINST_COMPLETION):
            return None  # admission has refused that together with complete=True
        try:
            pieces = tuple(matcher.completion(max_work=FIRST_COMPLETION_WORK))
            num_needed = len(self.encode(pieces))
        except (GrammarTooComplexError, InvalidConstraintError) as error:
            if request.complete is None:
                return None
            if isinstance(error, InvalidConstraintError):
                raise
            raise InvalidConstraintError(
                f"can't promise a complete output: {error.reason}", param="complete"
            ) from error
        if num_needed > num_left:
            raise InvalidParameterError(
                f"max_tokens is {num_left}; the shortest valid output takes {num_needed}",
                param="max_tokens",
            )
        return pieces

    @staticmethod
    def has_ample_room(last: Pieces, num_left: int) -> bool:
        """Whether ``num_left`` tokens are likely to be enough shortly after ``last`` was the
        completion."""
        return num_left > _num_bytes(last) + _AMPLE_LEN

    def fitting(self, matcher: Matcher, num_left: int, *, thorough: bool) -> Pieces | None:
        """The completion of the matcher's position, if it takes at most ``num_left`` tokens.

        Raises:
            GrammarTooComplexError: none is found in good time, which is longer if ``thorough``.
        """
        work = FIRST_COMPLETION_WORK if thorough else _STEP_WORK
        pieces = tuple(matcher.completion(max_work=work))
        try:
            if _num_bytes(pieces) <= num_left:
                return pieces  # A token has at least one byte.
            return pieces if len(self.encode(pieces)) <= num_left else None
        except InvalidConstraintError:
            return None

    def encode(self, pieces: Pieces) -> list[int]:
        """A completion's tokens."""
        known = self._encoded.get(pieces)
        if known is None:
            known = self._encoded[pieces] = self._encode(pieces)
            if len(self._encoded) > _CACHE_LEN:
                self._encoded.popitem(last=False)
        return known

    def _encode(self, pieces: Iterable[bytes | int]) -> list[int]:
        token_ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                token_ids.append(piece)
                continue
            try:
                token_ids += self._tokenizer.encode_bytes(piece)
            except InvalidParameterError as error:
                raise InvalidConstraintError(
                    f"can't promise a complete output: {error}", param="complete"
                ) from error
        return token_ids


def _num_bytes(pieces: Pieces) -> int:
    """How many bytes a completion has; a special token counts as one."""
    return sum(len(piece) if isinstance(piece, bytes) else 1 for piece in pieces)
