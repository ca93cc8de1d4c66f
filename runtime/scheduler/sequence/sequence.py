"""``Sequence``: a request's growing tokens and its state in the scheduler."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.events import Event, Timings, TokenInfo, Usage
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.cache import PrefixHandle
from ramet.runtime.parsers import OutputStream
from ramet.runtime.scheduler.sequence.kept_prefix import KeptPrefix
from ramet.runtime.scheduler.sequence.late_draw import LateDraw, ReadyMask
from ramet.runtime.scheduler.sequence.ngram_index import NgramIndex
from ramet.runtime.scheduler.sequence.pooling import Pooler
from ramet.runtime.scheduler.sequence.token_bans import TokenBans

NO_SLOT = -1


class SequenceState(enum.Enum):
    """A sequence's state: compiling its grammar, queued, in the batch, or ended.

    It leaves RUNNING for WAITING when it is preempted.
    """

    NEW = "new"
    COMPILING = "compiling"
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class Matcher(Protocol):
    """The part of a grammar's matcher that the scheduler uses."""

    @property
    def is_accepting(self) -> bool: ...

    @property
    def is_finished(self) -> bool: ...

    def fill_mask(self, row: npt.NDArray[np.int32]) -> None: ...

    def accept(self, token_id: int) -> bool: ...

    def rollback(self, num_tokens: int) -> None: ...

    def could_end(self, num_tokens: int, text: bytes) -> bool: ...

    def forced_bytes(self) -> bytes: ...

    def completion(self, *, max_work: int = ...) -> list[bytes | int]: ...


class Sequence:
    """One request on its way through the engine.

    Ownership of its pages while it runs (``C`` computed, ``N`` known tokens)::

        tokens  |0 ............ tree_len|........ C|..... N|
        pages   |  in the radix tree    |  the sequence's  |
        safe    |  while ``held`` is    |  until inserted  |

    ``held`` is the one handle that it holds; for the first step it may end inside a page that is
    being copied, ``copy_from``. Without a slot a sequence has no pages at all.
    """

    __slots__ = (
        "arrival",
        "awaits_admission",
        "bans",
        "blocked_on",
        "cached_len",
        "completion",
        "completion_is_current",
        "copy_from",
        "deadline",
        "due",
        "emit",
        "extends",
        "first_token_time",
        "grammar_s",
        "held",
        "is_late",
        "landing_biases",
        "late_draw",
        "matcher",
        "max_len",
        "ngram_index",
        "num_completed",
        "num_computed",
        "num_counted",
        "num_forced",
        "num_late_masks",
        "num_pages",
        "num_preemptions",
        "num_prompt",
        "num_scored",
        "num_tokens",
        "overdue",
        "page_key",
        "params",
        "pooler",
        "prompt_logprobs",
        "ready_mask",
        "request",
        "scheduled_time",
        "seed",
        "slot",
        "state",
        "submit_time",
        "text",
        "token_ids",
        "tree_len",
        "unsent_text",
        "unsent_tokens",
        "waited_s",
        "waits_since",
    )

    def __init__(
        self,
        request: Request,
        *,
        max_len: int,
        seed: int,
        text: OutputStream,
        emit: Callable[[Event], None],
        bans: TokenBans,
        submit_time: float,
        matcher: Matcher | None = None,
    ) -> None:
        prompt = np.asarray(request.prompt_token_ids, dtype=np.int32)
        self.request = request
        self.params: SamplingParams = request.params
        self.max_len = max_len
        self.seed = seed
        self.text = text
        self.emit = emit
        self.matcher = matcher
        self.late_draw: LateDraw | None = None
        self.ready_mask: ReadyMask | None = None
        self.num_late_masks = 0
        self.bans = bans
        self.arrival = 0
        self.state = SequenceState.NEW
        self.token_ids = np.empty(len(prompt) + min(max_len - len(prompt) + 1, 64), np.int32)
        self.token_ids[: len(prompt)] = prompt
        self.num_prompt = self.num_tokens = len(prompt)
        self.num_computed = 0
        self.num_forced = 0
        self.num_completed = 0
        self.num_counted = 0
        self.completion: tuple[bytes | int, ...] | None = None
        self.completion_is_current = True
        self.landing_biases: dict[int, float] = {}
        self.num_preemptions = 0
        self.cached_len = 0
        self.slot = NO_SLOT
        self.num_pages = 0
        self.tree_len = 0
        self.held: PrefixHandle | None = None
        self.copy_from: tuple[int, int] | None = None
        self.page_key = b""
        self.blocked_on: Blocked | None = None
        self.ngram_index: NgramIndex | None = None
        self.extends: KeptPrefix | None = None
        self.awaits_admission = False
        self.submit_time = self.waits_since = submit_time
        self.waited_s = 0.0
        self.overdue = False
        self.due = math.inf  # when its first token is wanted; kept by ServiceLevels
        self.is_late = False  # it can't be there by then
        self.scheduled_time: float | None = None
        self.first_token_time: float | None = None
        self.grammar_s = 0.0
        deadline_s = request.deadline_s
        self.deadline = None if deadline_s is None else submit_time + deadline_s
        scored = self.params.prompt_logprobs is not None
        self.num_scored = (request.score_from or 1) if scored else self.num_prompt
        self.prompt_logprobs: list[TokenInfo] = []
        self.pooler = Pooler(request.pooling, len(prompt)) if request.pooling else None
        self.unsent_text = ""
        self.unsent_tokens: list[TokenInfo] = []

    # -- tokens --------------------------------------------------------------------------------

    @property
    def num_output(self) -> int:
        return self.num_tokens - self.num_prompt

    @property
    def num_left(self) -> int:
        """How many tokens may still be appended."""
        return self.max_len - self.num_tokens

    @property
    def num_pending(self) -> int:
        """Known tokens that the model has yet to read; a prompt's last only if more must follow."""
        unread = self.max_len == self.num_prompt and self.pooler is None
        return self.num_tokens - self.num_computed - unread

    @property
    def reusable_len(self) -> int:
        """How many leading tokens may come from the cache: not those of which more is wanted."""
        if self.pooler is not None:
            return self.pooler.next_token
        return (self.num_scored if self.scoring else self.num_tokens) - 1

    @property
    def scoring(self) -> bool:
        """Whether log-probabilities of prompt tokens are still wanted."""
        return self.num_scored < self.num_prompt

    def append(self, token_id: int) -> None:
        """Adds a generated token."""
        if self.num_tokens == len(self.token_ids):
            self._grow(1)
        self.token_ids[self.num_tokens] = token_id
        self.num_tokens += 1

    def write_draft(self, draft: list[int]) -> None:
        """Writes draft tokens behind the known ones, where they don't count yet."""
        end = self.num_tokens + len(draft)
        if end > len(self.token_ids):
            self._grow(len(draft))
        self.token_ids[self.num_tokens : end] = draft

    def _grow(self, count: int) -> None:
        grown = np.empty(2 * len(self.token_ids) + count, np.int32)
        grown[: self.num_tokens] = self.token_ids[: self.num_tokens]
        self.token_ids = grown

    @property
    def known(self) -> npt.NDArray[np.int32]:
        """All tokens, prompt and output."""
        return self.token_ids[: self.num_tokens]

    @property
    def output(self) -> npt.NDArray[np.int32]:
        """The generated tokens."""
        return self.token_ids[self.num_prompt : self.num_tokens]

    # -- counts --------------------------------------------------------------------------------

    def usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.num_prompt,
            completion_tokens=self.num_output,
            cached_tokens=self.cached_len,
            forced_tokens=self.num_forced,
            completion_forced_tokens=self.num_completed,
        )

    def timings(self, now: float) -> Timings:
        def since(time: float | None) -> float | None:
            return None if time is None else time - self.submit_time

        return Timings(
            scheduled_s=since(self.scheduled_time),
            first_token_s=since(self.first_token_time),
            finished_s=now - self.submit_time,
            grammar_s=self.grammar_s,
        )


@dataclass(frozen=True, slots=True)
class Blocked:
    """A running sequence is about to compute what a waiting one needs, up to ``until_len``."""

    by: Sequence
    until_len: int
