"""Draft budget: how many draft tokens each row of a step gets."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from math import sqrt


def draft_lens(
    acceptance: Seq[Seq[float]], num_rows: float, step_cost: float, token_cost: float, limit: int
) -> list[int]:
    """The draft lengths that maximise the sum of the square roots of all rows' rates.

    A row's rate is the number of tokens that a step is expected to give it over the step's time.
    Draft tokens make one row faster and, as they take time, all others slower. The square root is
    halfway between the two ends of one scale (alpha-fairness, Mo and Walrand 2000): the sum of the
    rates themselves (goodput, Liu et al. 2024) lets a text that repeats itself take the step from
    the others, and the sum of their logarithms (proportional fairness, Kelly 1997) has the others
    hold up those that repeat themselves. Among equal rows all three maximise tokens per second.

    Args:
        acceptance: by draft, the chance that its first, its first two, ... tokens are accepted.
        num_rows: rows of the step, with drafts or not, and requests that wait for its end.
        step_cost: the step's time without drafts.
        token_cost: the time that a draft token adds.
        limit: most draft tokens in all.
    """
    gains: list[tuple[float, int]] = []
    for owner, chances in enumerate(acceptance):
        rate, root = 1.0, 1.0
        for chance in chances:
            rate += chance
            gains.append((root - sqrt(rate), owner))
            root = sqrt(rate)
    # A draft's tokens help less and less, so the best come in order within it.
    gains.sort()
    share = token_cost / step_cost
    roots, best, best_count = num_rows, num_rows * num_rows, 0
    for count, (loss, _) in enumerate(gains[:limit], 1):
        roots -= loss
        total = roots * roots / (1.0 + count * share)
        if total > best:
            best, best_count = total, count
    lens = [0] * len(acceptance)
    for _, owner in gains[:best_count]:
        lens[owner] += 1
    return lens
