"""Turns a request into the sequence that is scheduled, in the caller's thread."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from collections.abc import Sequence as Seq
from functools import cached_property

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.batch import ModelRunner
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.events import Event
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.api.validate import token_ids
from ramet.runtime.engine.requests.admission import check_request
from ramet.runtime.parsers import OutputStream
from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.scheduler.sequence.token_bans import TokenBans, TokenTexts
from ramet.runtime.tokenizer import Tokenizer

logger = logging.getLogger("ramet.engine")


class InputProcessor:
    """Checks requests and builds their sequences; safe from any thread.

    Args:
        max_len: the most tokens of a sequence.
        seed: seeds the draws of seeds for requests that name none; None: at random.
        clock: seconds, for submission times.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        *,
        max_len: int,
        seed: int | None,
        clock: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._tokenizer = tokenizer
        self._max_len = max_len
        self._clock = clock
        self._seeds = random.Random(seed)
        self._lock = threading.Lock()

    def request(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        constraint: Constraint | None = None,
        hint: ProgramHint | None = None,
    ) -> Request:
        """The request for a prompt, which is tokenized if it is a text."""
        if isinstance(prompt, str):
            prompt = self._tokenizer.encode(prompt, add_bos=self._tokenizer.adds_bos)
        return Request(
            prompt_token_ids=token_ids("prompt", prompt),
            params=params or SamplingParams(),
            constraint=constraint,
            hint=hint,
        )

    def process(
        self, request: Request, push: Callable[[Event], None], max_len: int | None = None
    ) -> Sequence:
        """The request's sequence, whose events go to ``push``.

        Args:
            max_len: the result of ``check_request``; None: the request is checked here.

        Raises:
            RametError: what is wrong with the request.
        """
        runner, tokenizer, params = self._runner, self._tokenizer, request.params
        if max_len is None:
            max_len = check_request(request, vocab_size=runner.vocab_size, max_len=self._max_len)
        if request.pooling and not runner.has_hidden_states:
            raise InvalidParameterError(
                f"{type(runner).__name__} has no hidden states to make embeddings of",
                param="pooling",
                code="unsupported_parameter",
            )
        with self._lock:
            seed = self._seeds.getrandbits(63) if params.seed is None else params.seed
        return Sequence(
            request,
            max_len=max_len,
            seed=seed % 2**64,
            text=OutputStream(params, tokenizer.special_ids),
            bans=TokenBans(params, tokenizer.eos_ids, self._token_texts),
            emit=_guarded(push),
            submit_time=self._clock(),
        )

    @cached_property
    def _token_texts(self) -> TokenTexts:
        return TokenTexts(self._tokenizer.vocabulary, self._runner.vocab_size)


def _guarded(push: Callable[[Event], None]) -> Callable[[Event], None]:
    """A caller's ``push``, its errors logged instead of raised into the step thread."""

    def emit(event: Event) -> None:
        try:
            push(event)
        except Exception:
            logger.exception("a request's reader failed on %s", type(event).__name__)

    return emit
