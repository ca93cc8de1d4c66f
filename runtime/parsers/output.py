"""Detokenizes an output: completes characters, cuts at stop strings, omits special tokens."""

from __future__ import annotations

from collections.abc import Callable, Set
from functools import partial
from typing import NamedTuple

from ramet.runtime.api.events import TokenInfo
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.parsers.stop_strings import StopMatch, StopStringMatcher, StopStrings
from ramet.runtime.parsers.utf8 import Utf8Assembler


class StreamStep(NamedTuple):
    """The effect of one token: ``text`` to show now, and a completed stop string."""

    text: str
    matched: str | None = None

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended the output; nothing more may be fed."""
        return self.matched is not None


_NOTHING = StreamStep("")


class OutputStream:
    """Turns tokens into text by a request's parameters; one object a request.

    Stop strings match the raw text, special tokens' text included, and may span both; what is
    shown leaves special tokens out when the parameters say so. No part of a stop string is shown
    before it is certain not to be one. Before ``min_tokens`` tokens no stop string counts.
    """

    def __init__(self, params: SamplingParams, special_ids: Set[int] = frozenset()) -> None:
        self._special_ids = special_ids
        self._skip_special = params.skip_special_tokens
        self._include_stop = params.include_stop_str_in_output
        self._min_tokens = params.min_tokens
        self._utf8 = Utf8Assembler()
        self._matcher = StopStringMatcher(StopStrings(params.stop)) if params.stop else None
        self._held: list[tuple[str, bool]] = []  # (text, shown) behind what has been handed out
        self._held_len = 0
        self.num_tokens = 0

    def feed_token(
        self,
        token: TokenInfo,
        *,
        ends_output: bool = False,
        may_stop: Callable[[int], bool] | None = None,
    ) -> StreamStep:
        """Adds the next token.

        Args:
            ends_output: the token is an end-of-text or stop token: its own text is shown only with
                ``include_stop_str_in_output``, and then like any other token's.
            may_stop: whether the output may end a given number of bytes before this token's end; a
                stop string that would end it elsewhere is text like any other. None: anywhere.
        """
        self.num_tokens += 1
        special = token.token_id in self._special_ids
        if not special and not ends_output:
            text = self._utf8.feed(token.token_bytes)
            if not text:
                return _NOTHING
            if self._matcher is None:
                return StreamStep(text)
            return self._take(text, True, may_stop)
        # A structural token ends any character that is still incomplete.
        before = self._take(self._utf8.feed(b"", final=True), True)
        if before.stopped:
            return before
        shown = not (special and self._skip_special) and (self._include_stop or not ends_output)
        step = self._take(token.token_bytes.decode("utf-8", "replace"), shown, may_stop)
        return StreamStep(before.text + step.text, step.matched)

    def finish(self) -> StreamStep:
        """The text that was held back, at an end that no stop string made."""
        step = self._take(self._utf8.feed(b"", final=True), True)
        if step.stopped:
            return step
        return StreamStep(step.text + self._release(self._held_len))

    def _take(
        self, text: str, shown: bool, may_stop: Callable[[int], bool] | None = None
    ) -> StreamStep:
        if not text:
            return _NOTHING
        if self._matcher is None:
            return StreamStep(text) if shown else _NOTHING
        match = None
        if self.num_tokens < self._min_tokens:
            self._matcher.skip(text)
        else:
            counts = None if may_stop is None else partial(self._counts, text, may_stop)
            match = self._matcher.find(text, counts)
        if match is not None:
            return self._stop(text, shown, match)
        self._held.append((text, shown))
        self._held_len += len(text)
        return StreamStep(self._release(self._held_len - self._matcher.held_len))

    def _counts(self, text: str, may_stop: Callable[[int], bool], match: StopMatch) -> bool:
        """Whether the output may end with a stop string that was found in ``text``."""
        after = len(text[match.end :].encode()) + self._utf8.num_held
        return may_stop(after if self._include_stop else after + len(match.string.encode()))

    def _stop(self, text: str, shown: bool, match: StopMatch) -> StreamStep:
        self._held.append((text[: match.end], shown))
        self._held_len += match.end
        out = self._release(self._held_len - len(match.string))
        self._held.clear()
        self._held_len = 0
        return StreamStep(out + match.string if self._include_stop else out, match.string)

    def _release(self, num_chars: int) -> str:
        """Takes ``num_chars`` of the held text, and returns what of it is shown."""
        out: list[str] = []
        self._held_len -= num_chars
        while num_chars > 0:
            text, shown = self._held[0]
            part = text[:num_chars]
            if shown:
                out.append(part)
            if len(part) == len(text):
                del self._held[0]
            else:
                self._held[0] = (text[num_chars:], shown)
            num_chars -= len(part)
        return "".join(out)
