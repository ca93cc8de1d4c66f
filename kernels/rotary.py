"""Rotary position embedding (Su et al. 2021) and the write of keys and values into their pages."""

from __future__ import annotations

import torch

from ramet.kernels.triton_support.dispatch import next_power_of_2, uses_triton
from ramet.kernels.triton_support.triton_language import tl, triton


@triton.jit
def _rotate_and_write(  # type: ignore[no-untyped-def]
    qkv,
    cos_sin,
    positions,
    slots,
    k_pages,
    v_pages,
    qkv_stride,
    page_stride,
    head_stride,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    ROTARY_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    """One head of one token: queries first, then keys, then values."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    x = qkv + token * qkv_stride + head * HEAD_DIM
    d = tl.arange(0, BLOCK_D)
    slot = tl.load(slots + token)
    kv_head = (head - NUM_HEADS) % NUM_KV_HEADS
    target = (
        (slot // PAGE_SIZE).to(tl.int64) * page_stride
        + kv_head * head_stride
        + (slot % PAGE_SIZE) * HEAD_DIM
    )
    if head >= NUM_HEADS + NUM_KV_HEADS:
        if slot >= 0:
            value = tl.load(x + d, mask=d < HEAD_DIM, other=0.0)
            tl.store(v_pages + target + d, value, mask=d < HEAD_DIM)
        return
    pair = tl.arange(0, BLOCK_PAIRS)
    live = pair < ROTARY_DIM // 2
    row = cos_sin + tl.load(positions + token).to(tl.int64) * ROTARY_DIM
    cos = tl.load(row + pair, mask=live, other=0.0)
    sin = tl.load(row + ROTARY_DIM // 2 + pair, mask=live, other=0.0)
    if INTERLEAVED:
        first = 2 * pair
        second = 2 * pair + 1
    else:
        first = pair
        second = pair + ROTARY_DIM // 2
    a = tl.load(x + first, mask=live, other=0.0).to(tl.float32)
    b = tl.load(x + second, mask=live, other=0.0).to(tl.float32)
    new_a = (a * cos - b * sin).to(qkv.dtype.element_ty)
    new_b = (b * cos + a * sin).to(qkv.dtype.element_ty)
    if head < NUM_HEADS:
        tl.store(x + first, new_a, mask=live)
        tl.store(x + second, new_b, mask=live)
    elif slot >= 0:
        tl.store(k_pages + target + first, new_a, mask=live)
        tl.store(k_pages + target + second, new_b, mask=live)
        if ROTARY_DIM < HEAD_DIM:
            rest = (d >= ROTARY_DIM) & (d < HEAD_DIM)
            value = tl.load(x + d, mask=rest, other=0.0)
            tl.store(k_pages + target + d, value, mask=rest)


def rotate_and_write(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    *,
    num_heads: int,
    interleaved: bool = False,
) -> torch.Tensor:
    """Rotates queries in place, writes rotated keys, and values, into their pages.

    Args:
        qkv: [T, (num_heads + 2 * num_kv_heads) * head_dim]: queries, keys, values. Only its
            queries are rotated in place.
        cos_sin: float32 [max_position, rotary_dim], cosines then sines of each pair's angle; the
            components of a head beyond ``rotary_dim`` are not rotated.
        positions: int32[T].
        slots: int32[T], ``page * page_size + offset`` where a token's key goes; -1: nowhere.
        k_pages, v_pages: [num_pages, num_kv_heads, page_size, head_dim].
        interleaved: pairs are components 2i and 2i + 1; otherwise i and i + rotary_dim / 2.

    Returns:
        The queries, a view [T, num_heads, head_dim] of ``qkv``.
    """
    num_tokens = len(qkv)
    _, num_kv_heads, page_size, head_dim = k_pages.shape
    rotary_dim = cos_sin.shape[1]
    queries = qkv[:, : num_heads * head_dim].view(num_tokens, num_heads, head_dim)
    if not uses_triton(qkv):
        return rotate_and_write_reference(
            qkv,
            cos_sin,
            positions,
            slots,
            k_pages,
            v_pages,
            num_heads=num_heads,
            interleaved=interleaved,
        )
    if k_pages.stride() != v_pages.stride() or k_pages.stride()[2:] != (head_dim, 1):
        raise ValueError("k_pages and v_pages must have equal strides and contiguous heads")
    if num_tokens:
        _rotate_and_write[(num_tokens, num_heads + 2 * num_kv_heads)](
            qkv,
            cos_sin,
            positions,
            slots,
            k_pages,
            v_pages,
            qkv.stride(0),
            k_pages.stride(0),
            k_pages.stride(1),
            NUM_HEADS=num_heads,
            NUM_KV_HEADS=num_kv_heads,
            HEAD_DIM=head_dim,
            ROTARY_DIM=rotary_dim,
            PAGE_SIZE=page_size,
            INTERLEAVED=interleaved,
            BLOCK_PAIRS=next_power_of_2(rotary_dim // 2),
            BLOCK_D=next_power_of_2(head_dim),
            num_warps=1,
        )
    return queries


def rotate_and_write_reference(
    qkv: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    *,
    num_heads: int,
    interleaved: bool = False,
) -> torch.Tensor:
    """``rotate_and_write`` in torch; computes in float64 if qkv is, else in float32."""
    num_tokens = len(qkv)
    _, num_kv_heads, page_size, head_dim = k_pages.shape
    rotary_dim = cos_sin.shape[1]
    dtype = torch.promote_types(qkv.dtype, torch.float32)
    heads = qkv.view(num_tokens, num_heads + 2 * num_kv_heads, head_dim)
    rotated = heads[:, : num_heads + num_kv_heads, :rotary_dim].to(dtype)
    cos, sin = cos_sin[positions.long()].to(dtype)[:, None].chunk(2, dim=-1)
    a, b = (rotated[..., 0::2], rotated[..., 1::2]) if interleaved else rotated.chunk(2, dim=-1)
    pair = (a * cos - b * sin, b * cos + a * sin)
    rotated = torch.stack(pair, dim=-1).flatten(-2) if interleaved else torch.cat(pair, dim=-1)
    keys = heads[:, num_heads : num_heads + num_kv_heads].clone()
    keys[..., :rotary_dim] = rotated[:, num_heads:].to(qkv.dtype)
    heads[:, :num_heads, :rotary_dim] = rotated[:, :num_heads].to(qkv.dtype)
    kept = slots >= 0
    page, offset = slots[kept].long() // page_size, slots[kept].long() % page_size
    k_pages[page, :, offset] = keys[kept]
    v_pages[page, :, offset] = heads[:, num_heads + num_kv_heads :][kept]
    return heads[:, :num_heads]


def rotary_table(
    head_frequencies: torch.Tensor, num_positions: int, *, magnitude: float = 1.0
) -> torch.Tensor:
    """Cosines then sines of ``position * frequency``: float32 [num_positions, rotary_dim].

    Args:
        head_frequencies: float64 [rotary_dim / 2], radians a position.
        magnitude: scales both, as some context extensions ask (YaRN, Peng et al. 2023).
    """
    angle = torch.arange(num_positions, dtype=torch.float64)[:, None] * head_frequencies.double()
    return (torch.cat([angle.cos(), angle.sin()], dim=1) * magnitude).float()
