"""Applies drawn tokens to their sequences: grammar, text, forced tokens, and the end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from ramet.grammars.constraints import StructuralTag
from ramet.grammars.errors import GrammarTooComplexError
from ramet.runtime.api.errors import InvariantError, NoTokenAllowedError
from ramet.runtime.api.events import (
    FinishReason,
    PromptLogprobs,
    TextDelta,
    TokenInfo,
    TokenOrigin,
)
from ramet.runtime.scheduler.commit.completion import Completions
from ramet.runtime.scheduler.commit.jump_forward import JumpForward
from ramet.runtime.scheduler.commit.landing import Landing
from ramet.runtime.scheduler.commit.stops import StopConditions
from ramet.runtime.scheduler.commit.token_infos import TokenInfos
from ramet.runtime.scheduler.sequence.late_draw import ForkingMatcher, LateDraw, ReadyMask
from ramet.runtime.scheduler.sequence.sequence import Matcher, Sequence
from ramet.runtime.scheduler.sequence.token_bans import pack
from ramet.runtime.tokenizer.tokenizer import Tokenizer

MASK_BUDGET_S = 0.005
"""How long a step may wait for one mask."""


@dataclass(frozen=True, slots=True)
class End:
    """The successful end of a sequence."""

    reason: FinishReason
    matched_stop: str | int | None = None


class OutputWriter:
    """Appends tokens to sequences and sends their text on."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        vocab_size: int,
        *,
        forced_tokens: bool = True,
        run_in_background: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """``run_in_background`` runs a task in another thread: masks that take longer than
        ``MASK_BUDGET_S`` are filled there, by ``ForkingMatcher``. None: all are filled here."""
        self._run_in_background = run_in_background
        self._tokenizer = tokenizer
        self._eos_ids = tokenizer.eos_ids
        self._not_eos = ~pack(tokenizer.eos_ids, vocab_size)
        self._mask = np.empty_like(self._not_eos)
        self.token_infos = TokenInfos(tokenizer, vocab_size)
        self._texts = self.token_infos.texts
        self._jump_forward = JumpForward(tokenizer, self._texts) if forced_tokens else None
        self._completions = Completions(tokenizer)
        self._stops = StopConditions(self._texts)
        self._landing = Landing(self._texts, tokenizer.special_ids, tokenizer.eos_ids)

    # -- drawn tokens --------------------------------------------------------------------------

    def start_output(self, sequence: Sequence) -> End | None:
        """Appends what the grammar forces from the start; returns the end, if that is all."""
        matcher = sequence.matcher
        if matcher is None:
            return None
        sequence.completion = self._completions.begin(sequence, matcher)
        if self._is_complete(matcher):
            return End("stop")
        if self._jump_forward is None or sequence.bans.bans_always:
            return None
        matcher.fill_mask(self._mask)
        tokens, num_certain = self._jump_forward.encode(
            b"", self._jump_forward.text(matcher, self._mask)
        )
        keep, complete = self._accept(sequence, matcher, tokens, num_certain)
        if not self._can_complete(sequence, matcher, keep):
            matcher.rollback(keep)
            return None
        return self._append_all(sequence, tokens[:keep], None, complete=complete)

    def update_landing(self, sequence: Sequence) -> None:
        """Sets the biases of a sequence's next token, if it is to land softly."""
        if sequence.request.landing is not None:
            sequence.landing_biases = self._landing.biases(sequence)

    def advance(self, sequence: Sequence, token: TokenInfo) -> End | None:
        """Appends a drawn token, and the text that the grammar forces after it; returns the end.

        If the mask after it isn't filled in time, the token becomes the sequence's ``late_draw``.
        """
        if token.token_id < 0:
            raise NoTokenAllowedError(
                "no token is allowed here: bad_words, allowed_token_ids and the constraint "
                "together leave none"
            )
        matcher = sequence.matcher
        if matcher is None:
            return self._append(sequence, token)
        if not matcher.accept(token.token_id):
            raise InvariantError(f"the grammar refuses token {token.token_id}, which it allowed")
        if matcher.is_finished or self._stops.is_stop_token(sequence, token.token_id, num_new=1):
            return self._append(sequence, token, complete=matcher.is_finished)
        if not self._can_complete(sequence, matcher, 1):
            matcher.rollback(1)
            return self._complete(sequence, matcher)
        if self._run_in_background is None:
            matcher.fill_mask(self._mask)
        elif not self._try_mask(sequence, token, cast(ForkingMatcher, matcher)):
            return None
        return self._append_masked(sequence, matcher, token, self._mask)

    def _try_mask(self, sequence: Sequence, token: TokenInfo, matcher: ForkingMatcher) -> bool:
        """Fills the mask after a token; if that takes too long, in a thread: the token is late."""
        assert self._run_in_background is not None
        if matcher.try_mask(self._mask, MASK_BUDGET_S):
            return True
        self._draw_late(sequence, LateDraw(token, matcher.fork(), np.zeros_like(self._mask)))
        return False

    def _draw_late(self, sequence: Sequence, late: LateDraw) -> None:
        assert self._run_in_background is not None
        sequence.late_draw = late
        sequence.num_late_masks += 1
        self._run_in_background(late.make_mask)

    def _keep_mask(self, sequence: Sequence, mask: npt.NDArray[np.int32]) -> None:
        """Keeps the mask of a sequence's next draw."""
        ready = sequence.ready_mask
        if ready is None:
            ready = sequence.ready_mask = ReadyMask(np.empty_like(mask))
        ready.mask[:] = mask
        ready.num_output = sequence.num_output

    def resume(self, sequence: Sequence, late: LateDraw) -> End | None:
        """Appends a late token, whose mask is filled by now; returns the end, if it ends."""
        sequence.late_draw = None
        if late.error is not None:
            raise late.error
        sequence.matcher = late.matcher
        may_be_late = late.ahead is None
        return self._append_masked(
            sequence, late.matcher, late.token, late.mask, may_be_late=may_be_late
        )

    def _append_masked(
        self,
        sequence: Sequence,
        matcher: Matcher,
        token: TokenInfo,
        mask: npt.NDArray[np.int32],
        *,
        may_be_late: bool = True,
    ) -> End | None:
        """Appends a token that was accepted, and what must follow it, by the mask after it."""
        if matcher.is_accepting and not (mask & self._not_eos).any():
            # Nothing but the end may follow: no step is spent on drawing it.
            return self._append(sequence, token, complete=True)
        text = b""
        if self._jump_forward is not None and not sequence.bans.bans_always:
            text = self._jump_forward.text(matcher, mask)
        if text:
            return self._force(sequence, token, text, may_be_late=may_be_late)
        end = self._append(sequence, token)
        self._keep_mask(sequence, mask)
        return end

    def _append(
        self, sequence: Sequence, token: TokenInfo, *, complete: bool = False, num_ahead: int = 0
    ) -> End | None:
        """Adds a token; ``complete``: the grammar is at its end. The matcher has accepted
        ``num_ahead`` tokens after it."""
        params, token_id = sequence.params, token.token_id
        sequence.append(token_id)
        bad_words = sequence.bans.bad_words
        if bad_words is not None:
            bad_words.feed(token.token_bytes)
        may_stop = self._stops.may_stop(sequence, num_ahead)
        if self._stops.is_stop_token(sequence, token_id, num_ahead=num_ahead):
            end: End | None = End("stop", token_id)
            return self._write(sequence, token, end, may_stop, ends_output=True)
        ends = token_id in self._eos_ids
        may_end = sequence.num_output >= params.min_tokens and not params.ignore_eos
        end = None
        if complete or (ends and may_end):
            end = End("stop")
        elif sequence.num_tokens >= sequence.max_len:
            end, ends = End(_reason_at_limit(sequence)), False
        return self._write(sequence, token, end, may_stop, ends_output=ends and end is not None)

    @staticmethod
    def _write(
        sequence: Sequence,
        token: TokenInfo,
        end: End | None,
        may_stop: Callable[[int], bool] | None,
        *,
        ends_output: bool,
    ) -> End | None:
        """Adds the token's text; a stop string that it completes is the end instead."""
        step = sequence.text.feed_token(token, ends_output=ends_output, may_stop=may_stop)
        sequence.unsent_text += step.text
        sequence.unsent_tokens.append(token)
        if step.matched is not None:
            return End("stop", step.matched)
        return end if end is None else OutputWriter._finish(sequence, end)

    @staticmethod
    def _finish(sequence: Sequence, end: End) -> End:
        """Adds the text that was held back; a stop string in it is the end instead."""
        last = sequence.text.finish()
        sequence.unsent_text += last.text
        return end if last.matched is None else End("stop", last.matched)

    def _force(
        self, sequence: Sequence, drawn: TokenInfo, text: bytes, *, may_be_late: bool
    ) -> End | None:
        """Appends the drawn token with the text that the grammar forces after it.

        Both are encoded together, so that the drawn token is joined with what follows as in any
        text. A control token stays as it is, and so does one whose log-probability is wanted.
        """
        matcher = sequence.matcher
        assert matcher is not None
        assert self._jump_forward is not None
        if sequence.params.logprobs is not None or self._tokenizer.is_special(drawn.token_id):
            tokens, num_certain = self._jump_forward.encode(b"", text)
            tokens, num_certain = [drawn.token_id, *tokens], num_certain + 1
        else:
            tokens, num_certain = self._jump_forward.encode(drawn.token_bytes, text)
        matcher.rollback(1)
        keep, complete = self._accept(sequence, matcher, tokens, num_certain)
        is_cut = sum(len(self._texts[i]) for i in tokens[:keep]) < len(drawn.token_bytes)
        if is_cut or not self._can_complete(sequence, matcher, keep):
            # What was drawn must not be lost where its own end is still open.
            matcher.rollback(keep)
            tokens, keep, complete = [drawn.token_id], 1, False
            if not matcher.accept(drawn.token_id):
                raise InvariantError("a matcher refuses after a rollback what it accepted before")
        is_ready = False
        if self._run_in_background is not None and not complete:
            forking = cast(ForkingMatcher, matcher)
            is_ready = forking.try_mask(self._mask, MASK_BUDGET_S)
            if not is_ready and may_be_late:
                ahead = forking.fork()
                forking.rollback(keep)
                if not forking.accept(drawn.token_id):
                    raise InvariantError("a matcher refuses what it accepted before")
                mask = np.zeros_like(self._mask)
                self._draw_late(sequence, LateDraw(drawn, forking.fork(), mask, ahead))
                return None
        end = self._append_all(sequence, tokens[:keep], drawn, complete=complete)
        if is_ready:
            self._keep_mask(sequence, self._mask)
        return end

    def _accept(
        self, sequence: Sequence, matcher: Matcher, tokens: list[int], num_certain: int
    ) -> tuple[int, bool]:
        """Advances the matcher over tokens that can be appended for good; returns how many.

        These are the tokens that no following text can change, or all, if nothing may follow,
        which the second value indicates.
        """
        num_accepted = 0
        for token_id in tokens[: sequence.max_len - sequence.num_tokens]:
            if not matcher.accept(token_id):
                break
            num_accepted += 1
        complete = num_accepted == len(tokens) and self._is_complete(matcher)
        keep = num_accepted if complete else min(num_accepted, num_certain)
        matcher.rollback(num_accepted - keep)
        return keep, complete

    def _can_complete(self, sequence: Sequence, matcher: Matcher, num_new: int) -> bool:
        """Whether an output that is to be complete can be, once ``num_new`` tokens are appended
        that the matcher has accepted; keeps the completion.

        Where it was not promised, and none is found in good time, the output goes on without one
        as long as there is room, and more work is done before it has to end.
        """
        if sequence.completion is None:
            return True
        completions, num_left = self._completions, sequence.num_left - num_new
        promised = sequence.request.complete is True
        try:
            try:
                found = completions.fitting(matcher, num_left, thorough=promised)
            except GrammarTooComplexError:
                if promised:
                    raise
                if completions.has_ample_room(sequence.completion, num_left):
                    sequence.completion_is_current = False
                    return True
                found = completions.fitting(matcher, num_left, thorough=True)
        except GrammarTooComplexError:
            found = None
        if found is not None:
            sequence.completion, sequence.completion_is_current = found, True
            return True
        if not sequence.completion_is_current:
            sequence.completion = None  # the output may be cut
        return sequence.completion is None

    def _complete(self, sequence: Sequence, matcher: Matcher) -> End | None:
        """Ends an output by its completion, in place of a token that leaves no room for one."""
        assert sequence.completion is not None
        token_ids = self._completions.encode(sequence.completion)
        for token_id in token_ids:
            if not matcher.accept(token_id):
                raise InvariantError(f"the grammar refuses its own completion at {token_id}")
        sequence.num_completed += len(token_ids)
        if not token_ids:
            return self._finish(sequence, End("stop"))
        return self._append_all(sequence, token_ids, None, complete=True)

    def _append_all(
        self, sequence: Sequence, token_ids: list[int], drawn: TokenInfo | None, *, complete: bool
    ) -> End | None:
        """Appends tokens, the first of which was drawn, if one was, perhaps in another form."""
        wanted = sequence.params.logprobs
        for index, token_id in enumerate(token_ids):
            is_drawn = index == 0 and drawn is not None
            if is_drawn and drawn is not None and token_id == drawn.token_id:
                token = drawn
            else:
                certain = ((token_id, 0.0),) if wanted else ()
                logprob = None if wanted is None else 0.0
                origin: TokenOrigin = "sampled" if is_drawn else "forced"
                token = self.token_infos.info(token_id, logprob, certain, origin, 1)
            sequence.num_forced += not is_drawn
            num_ahead = len(token_ids) - 1 - index
            end = self._append(
                sequence, token, complete=complete and not num_ahead, num_ahead=num_ahead
            )
            if end is not None:
                return end
        return None

    def _is_complete(self, matcher: Matcher) -> bool:
        """Whether nothing but the end may follow."""
        if matcher.is_finished or not matcher.is_accepting:
            return matcher.is_finished
        matcher.fill_mask(self._mask)
        return not (self._mask & self._not_eos).any()

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
            tokens = [self.token_infos.info(int(sequence.token_ids[0])), *tokens]
        sequence.emit(PromptLogprobs(tuple(tokens), start))
        sequence.prompt_logprobs = []


def _reason_at_limit(sequence: Sequence) -> FinishReason:
    """Why an output ends at its last token: a complete one has not been cut.

    Free text that tags may stand in is cut, for all that it is allowed to end anywhere.
    """
    is_whole = sequence.completion is not None and sequence.completion_is_current
    is_text = isinstance(sequence.request.constraint, StructuralTag)
    return "stop" if is_whole and not is_text else "length"
