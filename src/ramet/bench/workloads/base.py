"""The base of all workloads: options, and the jobs generated from them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ramet.bench.job import Job, Pace, Tokens, Workload

MAX_VOCAB_SIZE = 32_000
"""Random token ids are below this by default: in the vocabulary of nearly every model."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a workload: its help, and its smallest value."""

    help: str
    least: float = 1


Concurrency = Annotated[int, Option("Most requests at once, without --rate.")]
Rate = Annotated[
    float | None, Option("Requests per second on average, whatever is still running.", 0.001)
]
Burst = Annotated[int, Option("Requests that arrive together, with --rate.")]
OutputLen = Annotated[int, Option("Tokens of each output.")]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The options of one kind of workload. Subclasses declare theirs as fields.

    Attributes:
        name: its name on the command line.
    """

    name: ClassVar[str]

    def build(self, seed: str, ids: range = range(MAX_VOCAB_SIZE)) -> Workload:
        """Its jobs: the same for the same options, seed and ids.

        Args:
            ids: the token ids from which random prompts are drawn.
        """
        jobs = tuple(self.jobs(seed, RandomTokens(seed, ids)))
        return Workload(self.name, jobs, self.pace(), seed)

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job] | Sequence[Job]:
        raise NotImplementedError

    def pace(self) -> Pace:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PacedLoad(Load):
    """A load whose jobs come at a pace that can be chosen."""

    concurrency: Concurrency = 8
    rate: Rate = None
    burst: Burst = 1

    def pace(self) -> Pace:
        return Pace(concurrency=self.concurrency, rate=self.rate, burst=self.burst)


@dataclass(frozen=True, slots=True)
class RandomTokens:
    """Reproducible random token ids."""

    seed: str
    ids: range

    def __call__(self, count: int, *key: object) -> Tokens:
        """``count`` ids, which depend on the seed and on ``key`` alone."""
        rng = random.Random("/".join(map(str, (self.seed, *key))))
        return tuple(rng.choice(self.ids) for _ in range(count))


def ordinary_ids(vocab_size: int) -> range:
    """The ids that random prompts are drawn from: special tokens, which are mostly at the low or at
    the high end, are left out."""
    high = min(vocab_size, MAX_VOCAB_SIZE)
    return range(min(1_000, high // 4), high - high // 100)
