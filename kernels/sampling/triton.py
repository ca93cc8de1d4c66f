"""Token choice on a GPU; ``kernels.sampling`` says what each step means.

Biases and penalties touch few logits and are scattered into them first (a mask would only turn
some of them into -inf, so the order doesn't matter). Then one program a row reads the row with its
mask applied on the fly: once for a greedy row, a few times more for a filtered one. No row is
sorted: top-k and top-p are thresholds, found by bisection over the logits' bit patterns, in which
order equals the order of floats. A row that asks for nothing pays for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from ramet.kernels.sampling.rows import SampleResult
from ramet.kernels.triton_support.dispatch import architecture, kernel_config
from ramet.kernels.triton_support.triton_language import tl, triton


@triton.jit
def _adjust(  # type: ignore[no-untyped-def]
    logits,
    bias_starts,
    bias_token_ids,
    bias_values,
    seen_starts,
    seen_token_ids,
    seen_output_counts,
    presence_penalty,
    frequency_penalty,
    repetition_penalty,
    logits_stride,
    BLOCK: tl.constexpr,
):
    """Adds the biases of one row, then takes its penalties, in place."""
    row = tl.program_id(0)
    x = logits + row.to(tl.int64) * logits_stride
    lane = tl.arange(0, BLOCK)
    start = tl.load(bias_starts + row)
    end = tl.load(bias_starts + row + 1)
    for first in range(start, end, BLOCK):
        entry = first + lane
        live = entry < end
        token = tl.load(bias_token_ids + entry, mask=live, other=0)
        value = tl.load(bias_values + entry, mask=live, other=0.0)
        tl.atomic_add(x + token, value, mask=live)
    tl.debug_barrier()
    start = tl.load(seen_starts + row)
    end = tl.load(seen_starts + row + 1)
    repetition = tl.load(repetition_penalty + row)
    frequency = tl.load(frequency_penalty + row)
    presence = tl.load(presence_penalty + row)
    for first in range(start, end, BLOCK):
        entry = first + lane
        live = entry < end
        token = tl.load(seen_token_ids + entry, mask=live, other=0)
        count = tl.load(seen_output_counts + entry, mask=live, other=0)
        old = tl.load(x + token, mask=live, other=0.0)
        new = tl.where(old > 0, old / repetition, old * repetition)
        new -= frequency * count.to(tl.float32) + tl.where(count > 0, presence, 0.0)
        tl.store(x + token, new, mask=live)


@triton.jit
def _masked(logits, words, mask_end, start, vocab_size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block of a row's logits and its token ids; -inf for NaN, masked and absent tokens.

    Tokens from ``mask_end`` on (all, in a row without a mask) are allowed, and no word is read.
    """
    token = start + tl.arange(0, BLOCK)
    inside = token < vocab_size
    x = tl.load(logits + token, mask=inside, other=-float("inf"))
    word = tl.load(words + token // 32, mask=token < mask_end, other=-1)
    allowed = ((word >> (token % 32)) & 1) != 0
    return tl.where(allowed & (x == x), x, -float("inf")), token


@triton.jit
def _sort_key(x):  # type: ignore[no-untyped-def]
    """Signed integers in the order of the floats (-0 is made +0)."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)


@triton.jit
def _threshold(  # type: ignore[no-untyped-def]
    logits,
    words,
    mask_end,
    vocab_size,
    highest,
    inverse_temperature,
    least,
    target,
    BY_COUNT: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The largest sort key T, at least ``least``, with ``measure(x >= T) >= target``.

    The measure of tokens is their number or the sum of ``exp((x - highest) / temperature)``. Of
    the interval that holds T, each pass over the row measures three points and keeps a quarter.
    """
    low = least.to(tl.int64)  # the measure from here on is enough
    high = _sort_key(highest).to(tl.int64) + 1  # from here on it is not
    while high - low > 1:
        width = high - low
        p1 = low + tl.maximum(width // 4, 1)
        p2 = low + tl.maximum(width // 2, 1)
        p3 = low + tl.maximum(width * 3 // 4, 1)
        sum1 = tl.zeros([BLOCK], tl.float32)
        sum2 = tl.zeros([BLOCK], tl.float32)
        sum3 = tl.zeros([BLOCK], tl.float32)
        for start in range(0, vocab_size, BLOCK):
            x, _ = _masked(logits, words, mask_end, start, vocab_size, BLOCK)
            key = _sort_key(x).to(tl.int64)
            if BY_COUNT:
                weight = tl.where(x == -float("inf"), 0.0, 1.0)
            else:
                weight = tl.exp((x - highest) * inverse_temperature)
            sum1 += tl.where(key >= p1, weight, 0.0)
            sum2 += tl.where(key >= p2, weight, 0.0)
            sum3 += tl.where(key >= p3, weight, 0.0)
        enough1 = tl.sum(sum1) >= target
        enough2 = tl.sum(sum2) >= target
        enough3 = tl.sum(sum3) >= target
        new_low = tl.where(enough3, p3, tl.where(enough2, p2, tl.where(enough1, p1, low)))
        high = tl.where(enough3, high, tl.where(enough2, p3, tl.where(enough1, p2, p1)))
        low = new_low
    return low


@triton.jit
def _uniform(seed, position):  # type: ignore[no-untyped-def]
    """One float64 in (0, 1) from Philox 4x32-10; the bits of ``sampling.uniforms``."""
    low = (position & 0xFFFFFFFF).to(tl.uint32)
    high = ((position >> 32) & 0xFFFFFFFF).to(tl.uint32)
    zero = tl.zeros_like(low)
    a, b, _, _ = tl.philox(seed, low, high, zero, zero)
    bits = (a.to(tl.int64) << 20) | (b.to(tl.int64) >> 12)
    return (bits.to(tl.float64) + 0.5) * 2.220446049250313e-16


@triton.jit(do_not_specialize=["num_top"])
def _choose(  # type: ignore[no-untyped-def]
    token_ids,
    logprobs,
    top_token_ids,
    top_logprobs,
    logits,
    temperature,
    top_p,
    top_k,
    min_p,
    seeds,
    positions,
    mask_rows,
    masks,
    num_logprobs,
    targets,
    vocab_size,
    num_top,
    logits_stride,
    masks_stride,
    BLOCK: tl.constexpr,
):
    """Chooses one row's token; see the module's text."""
    row = tl.program_id(0)
    x_row = logits + row.to(tl.int64) * logits_stride
    mask_row = tl.load(mask_rows + row)
    mask_end = tl.where(mask_row >= 0, vocab_size, 0)
    words = masks + tl.maximum(mask_row, 0).to(tl.int64) * masks_stride
    wanted = tl.load(num_logprobs + row)
    temp = tl.load(temperature + row)

    # Each lane keeps its best token and, relative to that, its sum of exponentials.
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    best_token = tl.full([BLOCK], 2147483647, tl.int32)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, vocab_size, BLOCK):
        x, token = _masked(x_row, words, mask_end, start, vocab_size, BLOCK)
        better = x > best
        new_best = tl.where(better, x, best)
        best_token = tl.where(better, token, best_token)
        base = tl.where(new_best == -float("inf"), 0.0, new_best)
        total = total * tl.exp(best - base) + tl.exp(x - base)
        best = new_best
    highest = tl.max(best)
    chosen = tl.min(tl.where(best == highest, best_token, 2147483647))
    target = tl.load(targets + row)
    if highest == -float("inf"):
        tl.store(token_ids + row, target)  # -1 unless one is given
        tl.store(logprobs + row, tl.where(wanted >= 0, -float("inf"), float("nan")))
        return
    sum_log = highest + tl.log(tl.sum(total * tl.exp(best - highest)))

    if target >= 0:
        chosen = target
    elif temp > 0:
        inverse = tl.minimum(1.0 / temp, 3e38)  # of a subnormal number it is infinite
        k = tl.load(top_k + row)
        p = tl.load(top_p + row)
        floor = tl.load(min_p + row)
        least = _sort_key(tl.full([1], -float("inf"), tl.float32)).to(tl.int64)
        least = tl.max(least)
        if (k > 0) & (k < vocab_size):
            least = _threshold(
                x_row,
                words,
                mask_end,
                vocab_size,
                highest,
                inverse,
                least,
                k.to(tl.float32),
                True,
                BLOCK,
            )
        if p < 1:
            mass = tl.zeros([BLOCK], tl.float32)
            for start in range(0, vocab_size, BLOCK):
                x, _ = _masked(x_row, words, mask_end, start, vocab_size, BLOCK)
                weight = tl.exp((x - highest) * inverse)
                mass += tl.where(_sort_key(x).to(tl.int64) >= least, weight, 0.0)
            least = _threshold(
                x_row,
                words,
                mask_end,
                vocab_size,
                highest,
                inverse,
                least,
                p * tl.sum(mass),
                False,
                BLOCK,
            )
        kept_total = (highest * 0.0).to(tl.float64)
        for start in range(0, vocab_size, BLOCK):
            x, _ = _masked(x_row, words, mask_end, start, vocab_size, BLOCK)
            weight = tl.exp((x - highest) * inverse)
            kept = (_sort_key(x).to(tl.int64) >= least) & (weight >= floor)
            kept_total += tl.sum(tl.where(kept, weight, 0.0)).to(tl.float64)
        goal = _uniform(tl.load(seeds + row), tl.load(positions + row)) * kept_total
        passed = (highest * 0.0).to(tl.float64)
        found = 2147483647
        last = chosen
        start = 0
        while (start < vocab_size) & (found == 2147483647):
            x, token = _masked(x_row, words, mask_end, start, vocab_size, BLOCK)
            weight = tl.exp((x - highest) * inverse)
            kept = (_sort_key(x).to(tl.int64) >= least) & (weight >= floor) & (weight > 0)
            weight = tl.where(kept, weight, 0.0)
            block_total = tl.sum(weight).to(tl.float64)
            last = tl.maximum(tl.max(tl.where(kept, token, -1)), tl.where(start == 0, -1, last))
            if passed + block_total > goal:
                running = passed + tl.cumsum(weight.to(tl.float64), 0)
                found = tl.min(tl.where(kept & (running > goal), token, 2147483647))
                # Rounding may leave the goal just beyond the block's running sum.
                found = tl.where(found == 2147483647, last, found)
            passed += block_total
            start += BLOCK
        chosen = tl.where(found == 2147483647, last, found)

    tl.store(token_ids + row, chosen)
    if wanted < 0:
        tl.store(logprobs + row, float("nan"))
        return
    value = tl.load(x_row + chosen)
    word = tl.load(words + chosen // 32, mask=chosen < mask_end, other=-1)
    allowed = ((word >> (chosen % 32)) & 1) != 0
    value = tl.where(allowed & (value == value), value, -float("inf"))
    tl.store(logprobs + row, value - sum_log)
    previous = float("inf")
    previous_token = -1
    for rank in range(0, wanted):
        best = tl.full([BLOCK], -float("inf"), tl.float32)
        best_token = tl.full([BLOCK], 2147483647, tl.int32)
        for start in range(0, vocab_size, BLOCK):
            x, token = _masked(x_row, words, mask_end, start, vocab_size, BLOCK)
            later = (x < previous) | ((x == previous) & (token > previous_token))
            better = later & (x > best)
            best = tl.where(better, x, best)
            best_token = tl.where(better, token, best_token)
        previous = tl.max(best)
        previous_token = tl.min(tl.where(best == previous, best_token, 2147483647))
        live = previous > -float("inf")
        place = row.to(tl.int64) * num_top + rank
        tl.store(top_token_ids + place, tl.where(live, previous_token, -1))
        tl.store(top_logprobs + place, previous - sum_log)


def sample_gpu(
    logits: torch.Tensor, rows: Mapping[str, torch.Tensor], *, num_top: int
) -> SampleResult[torch.Tensor, torch.Tensor]:
    """``sampling.sample_reference`` on a GPU.

    Args:
        logits: float32 [S, V]; biases and penalties are left in it.
        rows: the fields of ``SamplingRows`` as tensors of one device; ``seeds`` are int64, the
            bits of the unsigned seeds.
        num_top: the largest of ``num_logprobs``, at least 0: the K of the result.
    """
    num_rows, vocab_size = logits.shape
    if logits.dtype != torch.float32 or logits.stride(1) != 1:
        raise ValueError("logits must be float32 and contiguous in their last dimension")
    device = logits.device
    result = SampleResult(
        torch.empty(num_rows, dtype=torch.int32, device=device),
        torch.empty(num_rows, dtype=torch.float32, device=device),
        torch.full((num_rows, num_top), -1, dtype=torch.int32, device=device),
        torch.full((num_rows, num_top), -torch.inf, dtype=torch.float32, device=device),
    )
    if num_rows == 0:
        return result
    arch = architecture(device)
    if len(rows["bias_token_ids"]) or len(rows["seen_token_ids"]):
        _adjust[(num_rows,)](
            logits,
            rows["bias_starts"],
            rows["bias_token_ids"],
            rows["bias_values"],
            rows["seen_starts"],
            rows["seen_token_ids"],
            rows["seen_output_counts"],
            rows["presence_penalty"],
            rows["frequency_penalty"],
            rows["repetition_penalty"],
            logits.stride(0),
            **kernel_config("sampling", "adjust", arch),
        )
    _choose[(num_rows,)](
        *result,
        logits,
        rows["temperature"],
        rows["top_p"],
        rows["top_k"],
        rows["min_p"],
        rows["seeds"],
        rows["positions"],
        rows["mask_rows"],
        rows["masks"],
        rows["num_logprobs"],
        rows["targets"],
        vocab_size,
        num_top,
        logits.stride(0),
        rows["masks"].stride(0),
        **kernel_config("sampling", "choose", arch),
    )
    return result
