"""How many guessed tokens each row of a step gets."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np


def draft_lens(
    odds: Seq[Seq[float]], num_rows: int, step_cost: float, token_cost: float, limit: int
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
        num_rows: rows of the step, drafts or none.
        step_cost: the step's time without drafts.
        token_cost: what a guessed token adds.
        limit: most guessed tokens in all.
    """
    lens = [len(chances) for chances in odds]
    gains: list[float] = []
    for chances in odds:
        rates = np.cumsum([1.0, *chances])
        gains.extend(np.log(rates[1:] / rates[:-1]).tolist())
    # A draft's tokens help less and less, so the best come in order within it.
    best_first = np.argsort(-np.array(gains), kind="stable")[:limit]
    if not len(best_first):
        return [0] * len(lens)
    counts = np.arange(1, len(best_first) + 1)
    slower = num_rows * np.log1p(counts * (token_cost / step_cost))
    total = np.cumsum(np.array(gains)[best_first]) - slower
    best = int(total.argmax())
    if total[best] <= 0:
        return [0] * len(lens)
    owners = np.repeat(np.arange(len(lens)), lens)[best_first[: best + 1]]
    chosen: list[int] = np.bincount(owners, minlength=len(lens)).tolist()
    return chosen
