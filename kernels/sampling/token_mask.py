"""Packed token bitmasks, applied to logits by row index."""

from __future__ import annotations

import torch

from ramet.kernels.triton_support.dispatch import architecture, kernel_config, uses_triton
from ramet.kernels.triton_support.triton_language import tl, triton


@triton.jit
def _apply(  # type: ignore[no-untyped-def]
    logits, masks, mask_rows, vocab_size, logits_stride, masks_stride, BLOCK: tl.constexpr
):
    """Stores -inf where a bit is 0; rows without a mask end after one load."""
    row = tl.program_id(0)
    mask_row = tl.load(mask_rows + row)
    if mask_row < 0:
        return
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = token < vocab_size
    words = masks + mask_row.to(tl.int64) * masks_stride
    word = tl.load(words + token // 32, mask=inside, other=-1)
    forbidden = ((word >> (token % 32)) & 1) == 0
    tl.store(
        logits + row.to(tl.int64) * logits_stride + token, -float("inf"), mask=inside & forbidden
    )


def apply_token_mask(
    logits: torch.Tensor, masks: torch.Tensor, mask_rows: torch.Tensor
) -> torch.Tensor:
    """Sets the logits of tokens whose bit is 0 to -inf, in place.

    Args:
        logits: [S, V], any floating type.
        masks: int32[M, ceil(V / 32)]; bit i of word j allows token 32*j+i.
        mask_rows: int32[S], a row of ``masks``, or -1: the row stays as it is, and is not read.

    Returns:
        ``logits``.
    """
    num_rows, vocab_size = logits.shape
    if masks.shape[1] * 32 < vocab_size:
        raise ValueError(f"masks of {masks.shape[1]} words don't cover {vocab_size} tokens")
    if num_rows == 0 or len(masks) == 0:
        return logits
    if not uses_triton(logits):
        return apply_token_mask_reference(logits, masks, mask_rows)
    config = kernel_config("token_mask", "apply", architecture(logits.device))
    _apply[(num_rows, -(-vocab_size // config["BLOCK"]))](
        logits, masks, mask_rows, vocab_size, logits.stride(0), masks.stride(0), **config
    )
    return logits


def unpack_token_masks(masks: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Packed masks int32[M, W] as bool[M, vocab_size]."""
    bits = (masks[:, :, None] >> torch.arange(32, device=masks.device, dtype=torch.int32)) & 1
    return bits.reshape(len(masks), -1)[:, :vocab_size].bool()


def apply_token_mask_reference(
    logits: torch.Tensor, masks: torch.Tensor, mask_rows: torch.Tensor
) -> torch.Tensor:
    """``apply_token_mask`` in torch."""
    allowed = unpack_token_masks(masks, logits.shape[1])
    for row, mask_row in enumerate(mask_rows.tolist()):
        if mask_row >= 0:
            logits[row].masked_fill_(~allowed[mask_row], -torch.inf)
    return logits
