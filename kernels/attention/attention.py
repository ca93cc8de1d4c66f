"""Attention of any mix of rows over keys and values in pages, following an ``AttentionPlan``.

Pages are laid out ``[num_pages, num_kv_heads, page_size, head_dim]``, keys and values in tensors
of equal strides: one head's keys of one page are contiguous, so a page of 16 tokens of 128 half
precision components is one 4 KiB read.

Two kernels. ``_attend`` runs one item of the plan for one key/value head: a tile of queries (the
tokens of the item times the query heads of the group) against the item's keys, with the online
softmax of FlashAttention (Dao et al. 2022). ``_merge`` adds up the partial results of tokens that
several items cover, in the order of their keys. What rows share is the plan's business alone.
"""

from __future__ import annotations

import torch

from ramet.kernels.attention.costs import AttentionShape
from ramet.kernels.attention.inputs import AttentionInputs
from ramet.kernels.attention.reference import paged_attention_reference
from ramet.kernels.triton_support.dispatch import (
    architecture,
    kernel_config,
    next_power_of_2,
    uses_triton,
)
from ramet.kernels.triton_support.triton_language import tl, triton

LN_2 = 0.6931471805599453


def attention_shape(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    arch: str,
) -> AttentionShape:
    """The shape to plan with for a model's heads on an architecture (``dispatch.architecture``):
    its tiles are those that the kernel will use there."""
    if num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} heads can't share {num_kv_heads} key/value heads evenly")
    group = num_heads // num_kv_heads
    narrow = _tile_config("narrow", group, head_dim, arch)
    wide = _tile_config("wide", group, head_dim, arch)
    return AttentionShape(
        num_kv_heads=num_kv_heads,
        group_size=group,
        head_dim=head_dim,
        element_bytes=dtype.itemsize,
        narrow_tokens=narrow["BLOCK_M"] // group,
        wide_tokens=wide["BLOCK_M"] // group,
        block_keys=max(narrow["BLOCK_N"], wide["BLOCK_N"]),
    )


def _tile_config(tile: str, group_size: int, head_dim: int, arch: str) -> dict[str, int]:
    """Constants of a tile: a tile always holds a token's whole group of heads."""
    size = next(size for size in (64, 128, 256) if head_dim <= size)
    config = kernel_config("paged_attention", f"{tile}_{size}", arch)
    config["BLOCK_M"] = max(config["BLOCK_M"], next_power_of_2(group_size))
    config["BLOCK_D"] = size
    return config


@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["items"])
def _attend(  # type: ignore[no-untyped-def]
    q,
    k_pages,
    v_pages,
    out,
    partial,
    lse,
    items,
    page_tables,
    positions,
    sinks,
    scale_log2,
    soft_cap,
    window,
    num_heads,
    q_stride_token,
    q_stride_head,
    page_stride,
    head_stride,
    out_stride_token,
    out_stride_head,
    table_stride,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """One item for one key/value head. Scores are kept in base 2, logarithms of sums in base e."""
    item = items + tl.program_id(0) * 6
    kv_head = tl.program_id(1)
    row = tl.load(item)
    key_start = tl.load(item + 1)
    key_end = tl.load(item + 2)
    token_start = tl.load(item + 3)
    token_end = tl.load(item + 4)
    slot = tl.load(item + 5)
    if token_start == token_end:
        return

    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    token = token_start + m // GROUP
    head = kv_head * GROUP + m % GROUP
    live = token < token_end
    in_head = d < HEAD_DIM
    q_tile = tl.load(
        q
        + token.to(tl.int64)[:, None] * q_stride_token
        + head[:, None] * q_stride_head
        + d[None, :],
        mask=live[:, None] & in_head[None, :],
        other=0.0,
    )
    position = tl.load(positions + token, mask=live, other=0)

    highest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(key_start, key_end, BLOCK_N):
        key = start + n
        in_range = key < key_end
        page = tl.load(
            page_tables + row * table_stride + key // PAGE_SIZE, mask=in_range, other=0
        ).to(tl.int64)
        offset = page * page_stride + kv_head * head_stride + (key % PAGE_SIZE) * HEAD_DIM
        loaded = in_range[:, None] & in_head[None, :]
        k = tl.load(k_pages + offset[:, None] + d[None, :], mask=loaded, other=0.0)
        score = tl.dot(q_tile, tl.trans(k), input_precision="ieee") * scale_log2
        if HAS_CAP:
            # cap * tanh(score / cap), with scale_log2 and soft_cap both in base 2.
            score = soft_cap * (1.0 - 2.0 / (tl.exp2(score * (2.885390081777927 / soft_cap)) + 1.0))
        seen = in_range[None, :] & (key[None, :] <= position[:, None])
        if HAS_WINDOW:
            seen = seen & (key[None, :] > position[:, None] - window)
        score = tl.where(seen, score, -float("inf"))
        new_highest = tl.maximum(highest, tl.max(score, axis=1))
        base = tl.where(new_highest == -float("inf"), 0.0, new_highest)
        weight = tl.exp2(score - base[:, None])
        decay = tl.exp2(highest - base)
        total = total * decay + tl.sum(weight, axis=1)
        v = tl.load(v_pages + offset[:, None] + d[None, :], mask=loaded, other=0.0)
        weighted = tl.dot(
            weight.to(v.dtype), v, acc=weighted * decay[:, None], input_precision="ieee"
        )
        highest = new_highest

    divisor = tl.where(total == 0.0, 1.0, total)
    if HAS_SINKS:  # noqa: SIM102 (decided when it is compiled)
        if slot < 0:
            sink = tl.load(sinks + head, mask=live, other=0.0).to(tl.float32)
            divisor += tl.exp2(sink * 1.4426950408889634 - highest)
    result = weighted / divisor[:, None]
    if slot < 0:
        tl.store(
            out
            + token.to(tl.int64)[:, None] * out_stride_token
            + head[:, None] * out_stride_head
            + d[None, :],
            result.to(out.dtype.element_ty),
            mask=live[:, None] & in_head[None, :],
        )
    else:
        # One row of ``partial`` is one head of one slot.
        target = (slot + m // GROUP).to(tl.int64) * num_heads + head
        tl.store(
            partial + target[:, None] * HEAD_DIM + d[None, :],
            result,
            mask=live[:, None] & in_head[None, :],
        )
        sum_log = tl.where(
            total == 0.0, -float("inf"), (highest + tl.log2(total)) * 0.6931471805599453
        )
        tl.store(lse + target, sum_log, mask=live)


@triton.jit
def _merge(  # type: ignore[no-untyped-def]
    out,
    partial,
    lse,
    merge_tokens,
    merge_starts,
    merge_slots,
    sinks,
    num_heads,
    out_stride_token,
    out_stride_head,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):
    """One head of one token: its partial results, weighted by their sums of exponentials."""
    entry = tl.program_id(0)
    head = tl.program_id(1)
    token = tl.load(merge_tokens + entry).to(tl.int64)
    if token < 0:
        return
    start = tl.load(merge_starts + entry)
    end = tl.load(merge_starts + entry + 1)
    d = tl.arange(0, BLOCK_D)
    in_head = d < HEAD_DIM
    highest = -float("inf")
    total = 0.0
    weighted = tl.zeros([BLOCK_D], tl.float32)
    for index in range(start, end):
        source = tl.load(merge_slots + index).to(tl.int64) * num_heads + head
        sum_log = tl.load(lse + source)
        new_highest = tl.maximum(highest, sum_log)
        base = tl.where(new_highest == -float("inf"), 0.0, new_highest)
        decay = tl.exp(highest - base)
        weight = tl.exp(sum_log - base)
        piece = tl.load(partial + source * HEAD_DIM + d, mask=in_head, other=0.0)
        total = total * decay + weight
        weighted = weighted * decay + piece * weight
        highest = new_highest
    if HAS_SINKS:
        total += tl.exp(tl.load(sinks + head).to(tl.float32) - highest)
    tl.store(
        out + token * out_stride_token + head * out_stride_head + d,
        (weighted / total).to(out.dtype.element_ty),
        mask=in_head,
    )


def paged_attention(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    inputs: AttentionInputs,
    *,
    scale: float,
    soft_cap: float = 0.0,
    window: int = 0,
    sinks: torch.Tensor | None = None,
    workspace: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Attention of every token over the keys of its row up to its own.

    Args:
        q: [T, num_heads, head_dim].
        k_pages, v_pages: [num_pages, num_kv_heads, page_size, head_dim], of q's type.
        inputs: the plan; built with the same ``window``.
        scale: multiplies the scores; usually ``head_dim ** -0.5``.
        soft_cap: > 0 bounds the scores by ``soft_cap * tanh(score / soft_cap)`` (Gemma 2).
        window: > 0: each token sees this many keys, itself included.
        sinks: float32 [num_heads], scores without a value that take their part of each head's
            weights (gpt-oss, 2025); or None.
        workspace: float32 ``[slots, num_heads, head_dim]`` and ``[slots, num_heads]`` for at least
            ``inputs.num_slots`` slots; allocated when not given.

    Returns:
        [T, num_heads, head_dim] of q's type.
    """
    if not uses_triton(q):
        return paged_attention_reference(
            q, k_pages, v_pages, inputs, scale=scale, soft_cap=soft_cap, window=window, sinks=sinks
        )
    num_tokens, num_heads, head_dim = q.shape
    _, num_kv_heads, page_size, _ = k_pages.shape
    if k_pages.stride() != v_pages.stride() or k_pages.stride()[2:] != (head_dim, 1):
        raise ValueError("k_pages and v_pages must have equal strides and contiguous heads")
    if q.stride(2) != 1:
        raise ValueError("q must be contiguous in its last dimension")
    group = num_heads // num_kv_heads
    out = torch.empty(num_tokens, num_heads, head_dim, dtype=q.dtype, device=q.device)
    if workspace is None:
        size = (inputs.num_slots, num_heads)
        workspace = (
            torch.empty(*size, head_dim, dtype=torch.float32, device=q.device),
            torch.empty(*size, dtype=torch.float32, device=q.device),
        )
    partial, lse = workspace
    arch = architecture(q.device)
    # Inside the kernel scores are in base 2: the scale and the cap carry the factor.
    log2_e = 1.0 / LN_2
    parts = (
        ("narrow", inputs.items[: inputs.num_narrow]),
        ("wide", inputs.items[inputs.num_narrow :]),
    )
    for tile, items in parts:
        if len(items) == 0:
            continue
        _attend[(len(items), num_kv_heads)](
            q,
            k_pages,
            v_pages,
            out,
            partial,
            lse,
            items,
            inputs.page_tables,
            inputs.positions,
            q if sinks is None else sinks,
            scale * log2_e,
            soft_cap * log2_e,
            window,
            num_heads,
            q.stride(0),
            q.stride(1),
            k_pages.stride(0),
            k_pages.stride(1),
            out.stride(0),
            out.stride(1),
            inputs.page_tables.stride(0),
            GROUP=group,
            HEAD_DIM=head_dim,
            PAGE_SIZE=page_size,
            HAS_CAP=soft_cap > 0,
            HAS_WINDOW=window > 0,
            HAS_SINKS=sinks is not None,
            **_tile_config(tile, group, head_dim, arch),
        )
    if len(inputs.merge_tokens):
        _merge[(len(inputs.merge_tokens), num_heads)](
            out,
            partial,
            lse,
            inputs.merge_tokens,
            inputs.merge_starts,
            inputs.merge_slots,
            q if sinks is None else sinks,
            num_heads,
            out.stride(0),
            out.stride(1),
            HEAD_DIM=head_dim,
            BLOCK_D=next_power_of_2(head_dim),
            HAS_SINKS=sinks is not None,
            num_warps=1 if head_dim <= 64 else 2,
        )
    return out
