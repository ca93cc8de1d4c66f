"""Token choice: its meaning, in float64.

One row of logits becomes one token in this order:

1. **Mask.** A token whose bit is 0 gets -inf. NaN counts as -inf.
2. **Bias** is added to the logits of the row's bias tokens.
3. **Penalties**, for the row's seen tokens: a positive logit is divided by, a negative one
   multiplied by ``repetition_penalty`` (Keskar et al. 2019); then
   ``frequency_penalty * count + presence_penalty * (count > 0)`` is subtracted, where count is how
   often the token was generated (0: only the prompt has it).
4. **Log-probabilities** are the log-softmax of the logits at this point.
5. ``temperature == 0``: the likeliest token, the lowest id among equals. Otherwise logits are
   divided by the temperature and filtered: **top-k** keeps tokens no less likely than the k-th;
   **top-p** (Holtzman et al. 2019), over what is left, keeps the fewest likeliest tokens that
   together reach ``top_p``; **min-p** keeps tokens with at least ``min_p`` times the likeliest
   one's probability. A token as likely as the last one that a filter keeps is kept too, so a
   filter is a threshold on the logit and needs no order among equals.
6. **Draw**: one uniform number u in (0, 1) a row; the token is the first, by id, where the
   running sum of the kept probabilities passes u times their total.

u comes from Philox 4x32-10 (Salmon et al. 2011) with the row's seed as key and the token's position
as counter, so a draw depends on nothing but the row.

A row with a target (``targets[row] >= 0``) takes that token instead of steps 5 and 6: only its
log-probabilities are wanted. Any other row whose every token is at -inf gets token -1 and
log-probability -inf.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.kernels.sampling.rows import (
    Int64Array,
    SampledTokens,
    SampleResult,
    SamplingRows,
    UInt64Array,
)

UInt32Array = npt.NDArray[np.uint32]
Float64Array = npt.NDArray[np.float64]

_PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW_32 = np.uint64(0xFFFFFFFF)


def philox_words(seeds: UInt64Array, positions: Int64Array) -> UInt32Array:
    """Philox 4x32-10: key (low, high) of each seed, counter (low, high, 0, 0) of each position.

    Returns uint32[S, 4].
    """
    seeds = seeds.astype(np.uint64)
    counters = positions.astype(np.int64).view(np.uint64)
    c0, c1 = counters & _LOW_32, counters >> np.uint64(32)
    c2, c3 = np.zeros_like(c0), np.zeros_like(c0)
    k0, k1 = seeds & _LOW_32, seeds >> np.uint64(32)
    for _ in range(10):
        product0, product1 = _PHILOX_MULTIPLIERS[0] * c0, _PHILOX_MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> np.uint64(32)) ^ c1 ^ k0,
            product1 & _LOW_32,
            (product0 >> np.uint64(32)) ^ c3 ^ k1,
            product0 & _LOW_32,
        )
        k0 = (k0 + np.uint64(_PHILOX_WEYL[0])) & _LOW_32
        k1 = (k1 + np.uint64(_PHILOX_WEYL[1])) & _LOW_32
    return np.stack([c0, c1, c2, c3], axis=-1).astype(np.uint32)


def uniforms(seeds: UInt64Array, positions: Int64Array) -> Float64Array:
    """One number in (0, 1) a row: the first 52 bits of its Philox words, centred in their cell."""
    words = philox_words(seeds, positions).astype(np.uint64)
    bits = (words[:, 0] << np.uint64(20)) | (words[:, 1] >> np.uint64(12))
    return (bits.astype(np.float64) + 0.5) * 2.0**-52


def sample_reference(logits: npt.NDArray[np.floating], rows: SamplingRows) -> SampledTokens:
    """Chooses a token for each of S rows of ``logits`` [S, V], in float64."""
    num_rows, vocab_size = logits.shape
    num_top = max(0, int(rows.num_logprobs.max(initial=0)))
    result = SampleResult(
        np.full(num_rows, -1, np.int32),
        np.full(num_rows, np.nan, np.float32),
        np.full((num_rows, num_top), -1, np.int32),
        np.full((num_rows, num_top), -np.inf, np.float32),
    )
    draws = uniforms(rows.seeds, rows.positions)
    for row in range(num_rows):
        x = logits[row].astype(np.float64)
        x[np.isnan(x)] = -np.inf
        if rows.mask_rows[row] >= 0:
            bits = np.unpackbits(rows.masks[rows.mask_rows[row]].view(np.uint8), bitorder="little")
            x[bits[:vocab_size] == 0] = -np.inf

        entries = slice(rows.bias_starts[row], rows.bias_starts[row + 1])
        np.add.at(x, rows.bias_token_ids[entries], rows.bias_values[entries].astype(np.float64))

        entries = slice(rows.seen_starts[row], rows.seen_starts[row + 1])
        tokens = rows.seen_token_ids[entries]
        counts = rows.seen_output_counts[entries].astype(np.float64)
        seen = x[tokens]
        factor = float(rows.repetition_penalty[row])
        seen = np.where(seen > 0, seen / factor, seen * factor)
        seen -= float(rows.frequency_penalty[row]) * counts
        seen -= float(rows.presence_penalty[row]) * (counts > 0)
        x[tokens] = seen

        likeliest = int(np.argmax(x))
        if rows.targets[row] >= 0:
            token = int(rows.targets[row])
        elif x[likeliest] == -np.inf:
            result.logprobs[row] = -np.inf if rows.num_logprobs[row] >= 0 else np.nan
            continue
        elif rows.temperature[row] == 0:
            token = likeliest
        else:
            weights = _kept_weights(
                x / float(rows.temperature[row]),
                int(rows.top_k[row]),
                float(rows.top_p[row]),
                float(rows.min_p[row]),
            )
            sums = np.cumsum(weights)
            token = int(np.searchsorted(sums, draws[row] * sums[-1], side="right"))
        result.token_ids[row] = token

        if rows.num_logprobs[row] >= 0:
            if x[likeliest] == -np.inf:  # a target in a row without a choice
                result.logprobs[row] = -np.inf
                continue
            logprobs = x - x[likeliest]
            logprobs -= np.log(np.exp(logprobs).sum())
            result.logprobs[row] = logprobs[token]
            order = np.argsort(-logprobs, kind="stable")[: rows.num_logprobs[row]]
            order = order[logprobs[order] > -np.inf]
            result.top_token_ids[row, : len(order)] = order
            result.top_logprobs[row, : len(order)] = logprobs[order]
    return result


def _kept_weights(y: Float64Array, top_k: int, top_p: float, min_p: float) -> Float64Array:
    """Unnormalised probabilities of scaled logits ``y`` [V] after the filters; 0: dropped."""
    weights: Float64Array = np.exp(y - y.max())
    if 0 < top_k < len(y):
        weights[weights < np.partition(weights, -top_k)[-top_k]] = 0
    if top_p < 1:
        ordered = np.sort(weights)[::-1]
        last = np.searchsorted(np.cumsum(ordered), top_p * ordered.sum(), side="left")
        weights[weights < ordered[min(int(last), len(y) - 1)]] = 0
    if min_p > 0:
        weights[weights < min_p] = 0
    return weights
