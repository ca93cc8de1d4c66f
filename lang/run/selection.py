"""Three ways to compare choices by the log-probabilities of their tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ramet.lang.backends.base import ContinuationScore
from ramet.lang.base.errors import BackendError
from ramet.lang.graph.nodes import SelectMethod


def best_choice(
    scores: Sequence[ContinuationScore], method: SelectMethod
) -> tuple[int, list[float]]:
    """The index of the best choice, and a number a choice: the larger, the better.

    Of equal choices the first wins.
    """
    if any(not score.logprobs for score in scores):
        raise BackendError("a choice came back with no token scores")
    numbers = _METHODS[method](scores)
    return max(range(len(numbers)), key=lambda index: (numbers[index], -index)), numbers


def token_length_normalized(scores: Sequence[ContinuationScore]) -> list[float]:
    """The mean log-probability of a choice's tokens."""
    return [_mean(score.logprobs) for score in scores]


def unconditional_likelihood_normalized(scores: Sequence[ContinuationScore]) -> list[float]:
    """The mean of how much the prompt raises each token's log-probability.

    Brown et al. 2020, "Language Models are Few-Shot Learners", section 2.4.
    """
    return [
        _mean([a - b for a, b in zip(score.logprobs, score.unconditional_logprobs, strict=True)])
        for score in scores
    ]


def greedy_token_selection(scores: Sequence[ContinuationScore]) -> list[float]:
    """The number of tokens for which a choice stays among the likeliest, compared token by token.

    At each position only the choices with the likeliest token stay. A choice that has ended is
    taken to go on with its mean log-probability, so that one which is the beginning of another
    can win or lose against it.
    """
    survived = [0.0] * len(scores)
    remaining = list(range(len(scores)))
    for position in range(max(len(score.logprobs) for score in scores)):
        here = [_at(scores[index], position) for index in remaining]
        best = max(here)
        remaining = [i for i, logprob in zip(remaining, here, strict=True) if logprob == best]
        for index in remaining:
            survived[index] += 1
        if len(remaining) == 1:
            break
    return survived


def _at(score: ContinuationScore, position: int) -> float:
    if position < len(score.logprobs):
        return score.logprobs[position]
    return _mean(score.logprobs)


def _mean(numbers: Sequence[float]) -> float:
    return math.fsum(numbers) / len(numbers)


_METHODS = {
    "token_length_normalized": token_length_normalized,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}
