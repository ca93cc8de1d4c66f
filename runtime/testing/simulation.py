"""The scheduler under simulated time, without a model or threads, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from ramet.kernels.sampling.rows import without_logprobs
from ramet.runtime.api.batch import Batch, Float32Array, SampledTokens, SamplingRows
from ramet.runtime.api.errors import InvariantError
from ramet.runtime.api.events import Event
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.api.request import Request
from ramet.runtime.cache import PagePool, RadixCache
from ramet.runtime.engine.core import EngineCore
from ramet.runtime.engine.requests.request_registry import RequestRegistry
from ramet.runtime.parsers import OutputStream
from ramet.runtime.scheduler import Scheduler, SchedulerConfig, Sequence
from ramet.runtime.scheduler.sequence.sequence import Matcher
from ramet.runtime.scheduler.sequence.token_bans import TokenBans, TokenTexts
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import Tokenizer


def sample_greedily(logits: Float32Array, rows: SamplingRows) -> SampledTokens:
    """The likeliest token that the mask allows; much faster than the reference."""
    size = logits.shape[1]
    for row, mask_row in enumerate(rows.mask_rows):
        if mask_row >= 0:
            bits = np.unpackbits(rows.masks[mask_row].view(np.uint8), bitorder="little")
            logits[row, bits[:size] == 0] = -np.inf
    likeliest = logits.argmax(axis=1)
    return without_logprobs(np.where(rows.targets >= 0, rows.targets, likeliest).astype(np.int32))


class Simulation:
    """A scheduler, cache and engine core on the scripted model.

    The scripted model keeps each page's tokens and refuses a page table that is wrong or stale,
    so every step also checks what the sequences' page tables say.

    Args:
        before_step: called with each batch; what it raises is a fault of the runner.
        step_s: a step's duration, in seconds, which the scheduler measures too; None: one second,
            not measured.
        mask_steps: how many steps a mask takes that is made in the background; None: none is.

    Attributes:
        now: seconds; add to it to let time pass.
        events: what each sequence's caller has got.
    """

    tokenizer: ClassVar[Tokenizer] = scripted_tokenizer()
    _texts: ClassVar[TokenTexts] = TokenTexts(tokenizer.vocabulary, tokenizer.vocab_size)

    def __init__(
        self,
        config: SchedulerConfig,
        num_pages: int,
        page_size: int,
        *,
        before_step: Callable[[Batch], None] | None = None,
        mask_steps: int | None = None,
        step_s: Callable[[Batch], float] | None = None,
    ) -> None:
        self.now = 0.0
        self._step_s = step_s
        self._before_step = before_step
        self._num_steps = 0
        self._mask_steps = mask_steps
        self._masks: list[tuple[int, Callable[[], None]]] = []
        self.runner = ScriptedModel(
            self.tokenizer,
            num_pages=num_pages,
            page_size=page_size,
            before_step=self._start_step,
            sample=sample_greedily,
        )
        self.cache = RadixCache(PagePool(num_pages, page_size))
        self.max_len = num_pages * page_size
        self.scheduler = Scheduler(
            self.cache,
            self.tokenizer,
            vocab_size=self.tokenizer.vocab_size,
            max_len=self.max_len,
            config=config,
            clock=lambda: self.now,
            timer=None if step_s is None else lambda: self.now,
            on_end=lambda sequence: self.requests.remove(sequence),
            run_in_background=None if mask_steps is None else self._make_later,
        )
        self.requests = RequestRegistry(
            self.scheduler, config.max_waiting, MemoryPart("prompts", 64 << 20)
        )
        self.core = EngineCore(self.scheduler, self.runner)
        self.events: dict[Sequence, list[Event]] = {}

    def _start_step(self, batch: Batch) -> None:
        if self._step_s is not None:
            self.now += self._step_s(batch)
        if self._before_step is not None:
            self._before_step(batch)

    def _make_later(self, make_mask: Callable[[], None]) -> None:
        assert self._mask_steps is not None
        self._masks.append((self._num_steps + self._mask_steps, make_mask))

    def _make_masks(self) -> None:
        """Makes the masks that are due."""
        self._num_steps += 1
        due = [make for step, make in self._masks if step <= self._num_steps]
        self._masks = [task for task in self._masks if task[0] > self._num_steps]
        for make in due:
            make()

    def add(
        self, request: Request, matcher: Matcher | None = None, *, compiling: bool = False
    ) -> Sequence:
        """Queues a request; its greedy output is the scripted model's.

        QueueFullError when too many wait already; then the sequence is nowhere.

        Args:
            compiling: its grammar is being compiled: ``scheduler.add`` queues it later.
        """
        events: list[Event] = []
        params = request.params
        wanted = self.max_len if params.max_tokens is None else params.max_tokens
        if request.pooling:
            wanted = 0
        sequence = Sequence(
            request,
            max_len=min(len(request.prompt_token_ids) + wanted, self.max_len),
            seed=0,
            text=OutputStream(params, self.tokenizer.special_ids),
            bans=TokenBans(params, self.tokenizer.eos_ids, self._texts),
            emit=events.append,
            submit_time=self.now,
            matcher=matcher,
        )
        self.requests.register(sequence)
        self.events[sequence] = events
        if compiling:
            self.scheduler.hold(sequence)
        else:
            self.scheduler.add(sequence)
        return sequence

    def step(self) -> bool:
        """One step; False if there was nothing to do."""
        if self._step_s is None:
            self.now += 1.0
        self._make_masks()
        return self.core.step()

    def drain(self, limit: int = 20_000) -> None:
        """Steps until nothing waits or runs."""
        for _ in range(limit):
            if self.scheduler.idle:
                return
            self.step()
        raise InvariantError("some request never ends")
