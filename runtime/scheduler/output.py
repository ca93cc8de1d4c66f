"""What a drawn token does to its sequence: grammar, text, forced tokens, and whether it ends."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ramet.runtime.errors import InvariantError, RametError
from ramet.runtime.events import FinishReason, PromptLogprobs, TextDelta, TokenInfo, TokenLogprob
from ramet.runtime.scheduler.forced import ForcedTokens
from ramet.runtime.scheduler.restrictions import pack
from ramet.runtime.scheduler.sequence import Matcher, Sequence


class OutputTokenizer(Protocol):
    """What the scheduler asks of a tokenizer."""

    @property
    def eos_ids(self) -> Set[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def encode_bytes(self, data: bytes) -> list[int]: ...


@dataclass(frozen=True, slots=True)
class End:
    """How a sequence ends well."""

    reason: FinishReason
    matched_stop: str | int | None = None


class NoTokenAllowedError(RametError):
    """Mask, banned words and allowed tokens together leave nothing to draw."""

    status = 400
    type = "invalid_request_error"
    default_code = "no_token_allowed"


class OutputWriter:
    """Appends tokens to sequences and sends their text on."""

    def __init__(
        self, tokenizer: OutputTokenizer, vocab_size: int, *, forced_tokens: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = tokenizer.eos_ids
        self._not_eos = ~pack(tokenizer.eos_ids, vocab_size)
        self._mask = np.empty_like(self._not_eos)
        self._forced = ForcedTokens(tokenizer) if forced_tokens else None

    def token_info(
        self,
        token_id: int,
        logprob: float | None = None,
        top: tuple[tuple[int, float], ...] = (),
    ) -> TokenInfo:
        """A token with its bytes; ``top`` are the likeliest tokens with their log-probabilities."""
        return TokenInfo(
            token_id,
            self._bytes(token_id),
            logprob,
            tuple(TokenLogprob(i, self._bytes(i), value) for i, value in top),
        )

    def _bytes(self, token_id: int) -> bytes:
        try:
            return self._tokenizer.token_bytes(token_id)
        except RametError:  # a padding row of the model's head, which has no text
            return b""

    # -- drawn tokens --------------------------------------------------------------------------

    def advance(self, sequence: Sequence, token: TokenInfo) -> End | None:
        """Takes a drawn token, and what the grammar forces after it; returns the end, if it is."""
        if token.token_id < 0:
            raise NoTokenAllowedError(
                "no token is allowed here: bad_words, allowed_token_ids and the constraint "
                "together leave none"
            )
        matcher = sequence.matcher
        if matcher is not None and not matcher.accept(token.token_id):
            raise InvariantError(
                f"the grammar refuses token {token.token_id} that its mask allowed"
            )
        end = self._append(sequence, token)
        if end is None and matcher is not None and self._forced is not None:
            end = self._force(sequence)
        return end

    def _append(self, sequence: Sequence, token: TokenInfo) -> End | None:
        params, token_id = sequence.params, token.token_id
        matcher = sequence.matcher
        complete = matcher is not None and self._is_complete(matcher)
        sequence.append(token_id)
        bad_words = sequence.restrictions.bad_words
        if bad_words is not None:
            bad_words.feed(token.token_bytes)
        may_stop = sequence.num_output >= params.min_tokens
        if may_stop and token_id in params.stop_token_ids:
            return self._write(sequence, token, End("stop", token_id), ends_output=True)
        ends = token_id in self._eos_ids
        if complete or (ends and may_stop and not params.ignore_eos):
            return self._write(sequence, token, End("stop"), ends_output=ends)
        if sequence.num_tokens >= sequence.max_len:
            return self._write(sequence, token, End("length"))
        return self._write(sequence, token, None)

    def _is_complete(self, matcher: Matcher) -> bool:
        """Whether nothing but the end may follow: then no step is spent on drawing it."""
        if matcher.is_finished:
            return True
        if not matcher.is_accepting:
            return False
        matcher.fill_mask(self._mask)
        return not (self._mask & self._not_eos).any()

    @staticmethod
    def _write(
        sequence: Sequence, token: TokenInfo, end: End | None, *, ends_output: bool = False
    ) -> End | None:
        """Adds the token's text; a stop string that it completes is the end instead."""
        step = sequence.text.feed_token(token, ends_output=ends_output)
        sequence.unsent_text += step.text
        sequence.unsent_tokens.append(token)
        if step.matched is not None:
            return End("stop", step.matched)
        if end is not None:
            last = sequence.text.finish()
            sequence.unsent_text += last.text
            if last.matched is not None:
                return End("stop", last.matched)
        return end

    def _force(self, sequence: Sequence) -> End | None:
        """Appends the tokens of what the grammar leaves no choice about."""
        matcher = sequence.matcher
        assert matcher is not None
        assert self._forced is not None
        text = matcher.forced_bytes()
        if not text:
            return None
        tokens, num_certain = self._forced.encode(text)
        room = sequence.max_len - sequence.num_tokens
        num_accepted = 0
        for token_id in tokens[:room]:
            if not matcher.accept(token_id):
                break
            num_accepted += 1
        if not (num_accepted == len(tokens) and self._is_complete(matcher)):
            keep = min(num_accepted, num_certain)
            matcher.rollback(num_accepted - keep)
            num_accepted = keep
        # From here on the matcher is ahead of the tokens, so only the last may end the output.
        for i, token_id in enumerate(tokens[:num_accepted]):
            logprob = None if sequence.params.logprobs is None else 0.0
            top = ((token_id, 0.0),) if sequence.params.logprobs else ()
            sequence.num_forced += 1
            end = self._append_forced(
                sequence, self.token_info(token_id, logprob, top), last=i == num_accepted - 1
            )
            if end is not None:
                return end
        return None

    def _append_forced(self, sequence: Sequence, token: TokenInfo, *, last: bool) -> End | None:
        if last:
            return self._append(sequence, token)
        sequence.append(token.token_id)
        if sequence.restrictions.bad_words is not None:
            sequence.restrictions.bad_words.feed(token.token_bytes)
        return self._write(sequence, token, None)

    # -- sending -------------------------------------------------------------------------------

    def flush(self, sequence: Sequence, *, final: bool = False) -> bool:
        """Sends what text there is, with its tokens; True if an event went out."""
        if not sequence.unsent_text and not (final and sequence.unsent_tokens):
            return False
        delta = TextDelta(sequence.unsent_text, tuple(sequence.unsent_tokens))
        sequence.unsent_text = ""
        sequence.unsent_tokens = []
        sequence.emit(delta)
        return True

    def send_prompt_logprobs(self, sequence: Sequence) -> None:
        """Sends the log-probabilities of the prompt's tokens, once all are known."""
        start = sequence.request.score_from or 0
        tokens = sequence.prompt_logprobs
        if start == 0:
            tokens = [self.token_info(int(sequence.token_ids[0])), *tokens]
        sequence.emit(PromptLogprobs(tuple(tokens), start))
        sequence.prompt_logprobs = []
