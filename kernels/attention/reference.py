"""Attention over pages in torch, for devices without Triton and as the reference of its kernels."""

from __future__ import annotations

import torch

from ramet.kernels.attention.inputs import AttentionInputs


def paged_attention_reference(
    q: torch.Tensor,
    k_pages: torch.Tensor,
    v_pages: torch.Tensor,
    inputs: AttentionInputs,
    *,
    scale: float,
    soft_cap: float = 0.0,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """``paged_attention`` in torch, item by item; computes in float64 if q is, else float32."""
    num_tokens, num_heads, head_dim = q.shape
    _, num_kv_heads, page_size, _ = k_pages.shape
    group = num_heads // num_kv_heads
    dtype = torch.promote_types(q.dtype, torch.float32)
    out = torch.zeros(num_tokens, num_heads, head_dim, dtype=dtype, device=q.device)
    partial = torch.zeros(inputs.num_slots, num_heads, head_dim, dtype=dtype, device=q.device)
    lse = torch.zeros(inputs.num_slots, num_heads, dtype=dtype, device=q.device)
    positions = inputs.positions.long()
    for row, key_start, key_end, first, end, slot in inputs.items.tolist():
        if first == end:
            continue
        key = torch.arange(key_start, key_end, device=q.device)
        pages = inputs.page_tables[row, key // page_size].long()
        k = k_pages[pages, :, key % page_size].to(dtype)  # [N, kv_heads, D]
        v = v_pages[pages, :, key % page_size].to(dtype)
        queries = q[first:end].to(dtype).view(end - first, num_kv_heads, group, head_dim)
        score = torch.einsum("mhgd,nhd->hmgn", queries, k) * scale
        if soft_cap > 0:
            score = soft_cap * torch.tanh(score / soft_cap)
        position = positions[first:end, None]
        seen = key[None, :] <= position
        if window > 0:
            seen &= key[None, :] > position - window
        score = score.masked_fill(~seen[None, :, None, :], -torch.inf)
        sum_log = torch.logsumexp(score, dim=-1)  # [kv_heads, M, G]
        weight = torch.exp(score - sum_log.masked_fill(sum_log == -torch.inf, 0.0)[..., None])
        result = torch.einsum("hmgn,nhd->mhgd", weight, v).reshape(-1, num_heads, head_dim)
        if slot < 0:
            if sinks is not None:
                logs = sum_log.transpose(0, 1).reshape(-1, num_heads)
                result *= torch.sigmoid(logs - sinks.to(dtype))[..., None]
            out[first:end] = result
        else:
            partial[slot : slot + end - first] = result
            lse[slot : slot + end - first] = sum_log.transpose(0, 1).reshape(-1, num_heads)
    starts = inputs.merge_starts.tolist()
    for index, token in enumerate(inputs.merge_tokens.tolist()):
        if token < 0:
            continue
        slots = inputs.merge_slots[starts[index] : starts[index + 1]].long()
        logs = lse[slots]
        if sinks is not None:
            logs = torch.cat([logs, sinks.to(dtype)[None]])
        weight = torch.softmax(logs, dim=0)[: len(slots)]
        out[token] = (weight[..., None] * partial[slots]).sum(0)
    return out.to(q.dtype)
