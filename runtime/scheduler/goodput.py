"""How many guessed tokens each row of a step gets."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from math import log, log1p


def draft_lens(
    odds: Seq[Seq[float]], num_rows: float, step_cost: float, token_cost: float, limit: int
) -> list[int]:
    """The lengths of drafts that make the product of all rows' rates the greatest.

    A row's rate is the number of tokens that a step is expected to give it over the step's time.
    Guesses make one row faster and, as they take time, all others slower; the product is greatest
    where the last token guessed helps its row, in proportion, just as much as it costs all
    (proportional fairness, Kelly 1997). Among rows that are alike this is the most tokens a second
    (goodput, Liu et al. 2024); where one text repeats itself and others don't, the one can't take
    the step for itself.

    Args:
        odds: for each draft, the chance that its first, its first two, ... tokens are all right.
        num_rows: rows of the step, drafts or none, and who else waits for its end.
        step_cost: the step's time without drafts.
        token_cost: what a guessed token adds.
        limit: most guessed tokens in all.
    """
    gains: list[tuple[float, int]] = []
    for owner, chances in enumerate(odds):
        rate = 1.0
        for chance in chances:
            gains.append((-log1p(chance / rate), owner))
            rate += chance
    # A draft's tokens help less and less, so the best come in order within it.
    gains.sort()
    share = token_cost / step_cost
    gain = best = 0.0
    best_count = 0
    for count, (loss, _) in enumerate(gains[:limit], 1):
        gain -= loss
        total = gain - num_rows * log(1.0 + count * share)
        if total > best:
            best, best_count = total, count
    lens = [0] * len(odds)
    for _, owner in gains[:best_count]:
        lens[owner] += 1
    return lens
