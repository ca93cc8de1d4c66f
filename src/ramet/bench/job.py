"""Jobs of a workload, and when they are sent."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard


class Message(NamedTuple):
    """One message of a chat."""

    role: str
    content: str


Tokens = tuple[int, ...]
Messages = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """One request.

    Attributes:
        prompt: token ids, or messages.
        num_output_tokens: the length of its output: exact for token ids without a schema, else the
            most.
        schema: a JSON schema that the output must match.
        after: the index of an earlier job whose prompt and output ``prompt`` continues; this one is
            sent when that one has ended.
        delay_s: seconds between that end and this job: a tool that runs, a person who thinks.
        at_s: seconds from the start of the run at which a recorded job was sent; None: the pace
            decides.
    """

    prompt: Tokens | Messages
    num_output_tokens: int
    schema: dict[str, Any] | None = None
    after: int | None = None
    delay_s: float = 0.0
    at_s: float | None = None

    @property
    def has_exact_length(self) -> bool:
        return self.schema is None and not is_chat(self.prompt)


def is_chat(prompt: Tokens | Messages) -> TypeGuard[Messages]:
    """Whether a prompt consists of messages."""
    return bool(prompt) and isinstance(prompt[0], Message)


def is_tokens(prompt: Tokens | Messages) -> TypeGuard[Tokens]:
    """Whether a prompt consists of token ids."""
    return not is_chat(prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """When jobs that follow no other one are sent.

    Attributes:
        concurrency: a closed loop: the most requests that run at once; ignored with ``rate``.
        rate: an open loop: requests a second, on average.
        burst: requests that arrive together; bursts arrive as a Poisson process.
        speed: divides the times of recorded jobs.
    """

    concurrency: int = 8
    rate: float | None = None
    burst: int = 1
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs in order of arrival, and their pace. ``seed`` draws the arrival times."""

    name: str
    jobs: tuple[Job, ...]
    pace: Pace
    seed: str = "0"

    @property
    def is_open_loop(self) -> bool:
        """Whether jobs are sent without waiting for others to end."""
        return self.pace.rate is not None or any(job.at_s is not None for job in self.jobs)

    def arrivals(self) -> Iterator[float]:
        """Seconds after the start at which each job may be sent."""
        rng = random.Random(f"{self.seed}/arrivals")
        pace, at = self.pace, 0.0
        for index, job in enumerate(self.jobs):
            if job.at_s is not None:
                yield job.at_s / pace.speed
                continue
            if pace.rate is not None and index and index % pace.burst == 0:
                at += rng.expovariate(pace.rate / pace.burst)
            yield at

    def least_prompt_tokens(self) -> int | None:
        """The prompt tokens that a prefix cache of unlimited size has to compute: common prefixes
        count once. None where prompts are text, whose tokens depend on the model."""
        following: defaultdict[int | None, list[Tokens]] = defaultdict(list)
        for job in self.jobs:
            if not is_tokens(job.prompt):
                return None
            following[job.after].append(job.prompt)
        # The last token of an output is not in the cache when the output ends.
        return sum(map(_num_distinct, following.values())) + len(following.keys() - {None})


def _num_distinct(prompts: Iterable[Tokens]) -> int:
    """Tokens of all prompts, with those of common prefixes counted once."""
    total = 0
    previous: Tokens = ()
    for prompt in sorted(prompts):
        common = 0
        for ours, theirs in zip(prompt, previous, strict=False):
            if ours != theirs:
                break
            common += 1
        total += len(prompt) - common
        previous = prompt
    return total
