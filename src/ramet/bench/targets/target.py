"""The interface of targets, and the record of each job."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

from ramet.bench.job import Job, Message, Messages, Tokens, is_chat, is_tokens


@dataclass(slots=True)
class Outcome:
    """The outcome of one job. Times are seconds after it was sent.

    Attributes:
        sent_s: when it was sent, in seconds after the start of the run.
        event_times: when each piece of its output arrived.
        total_s: when its output ended.
        text, output_token_ids: its output; ids only where the target gives them.
        error: why it doesn't count.
    """

    sent_s: float = 0.0
    event_times: list[float] = field(default_factory=list)
    total_s: float = 0.0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_cached_tokens: int = 0
    text: str = ""
    output_token_ids: Tokens = ()
    error: str | None = None

    @property
    def ttft_s(self) -> float:
        """Time to the first token."""
        return self.event_times[0] if self.event_times else self.total_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None for outputs of one token."""
        if self.num_output_tokens < 2:
            return None
        return (self.total_s - self.ttft_s) / (self.num_output_tokens - 1)

    @property
    def gaps_s(self) -> list[float]:
        """Times between two pieces of output: what a reader waits."""
        return [later - earlier for earlier, later in pairwise(self.event_times)]

    def continue_with(self, prompt: Tokens | Messages, job: Job) -> Tokens | Messages:
        """The prompt of a job that comes after this one, whose prompt was ``prompt``."""
        if is_chat(prompt):
            assert is_chat(job.prompt)
            return (*prompt, Message("assistant", self.text), *job.prompt)
        assert is_tokens(prompt)
        assert is_tokens(job.prompt)
        return prompt + self.output_token_ids + job.prompt


class Target(Protocol):
    """Something that can run a job.

    Attributes:
        name: what reports call it.
    """

    name: str

    async def check(self) -> None:
        """Fails if it can't run any job.

        Raises:
            RametError: why.
        """

    async def send(
        self, job: Job, prompt: Tokens | Messages, *, want_token_ids: bool
    ) -> Outcome: ...

    async def close(self) -> None: ...


class Stopwatch:
    """Notes when a job's output arrives and ends."""

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.outcome = Outcome()

    def piece(self) -> None:
        self.outcome.event_times.append(time.perf_counter() - self.start)

    def end(self) -> Outcome:
        self.outcome.total_s = time.perf_counter() - self.start
        return self.outcome
