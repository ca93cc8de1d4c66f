"""Mixtures of experts in torch, on any device: routing, and the sum of experts' results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How tokens choose experts.

    Attributes:
        num_used: experts of a token.
        sigmoid: scores are the sigmoid of the router's logits; otherwise softmax over all.
        normalised: a token's weights are divided by their sum.
        scale: weights are multiplied by it.
        num_groups, num_groups_used, group_top: experts are chosen from the best groups of
            neighbours, by the sum of the best ``group_top`` of each.
    """

    num_used: int
    sigmoid: bool = False
    normalised: bool = True
    scale: float = 1.0
    num_groups: int = 1
    num_groups_used: int = 1
    group_top: int = 1


def route(
    logits: torch.Tensor, bias: torch.Tensor | None, routing: Routing
) -> tuple[torch.Tensor, torch.Tensor]:
    """The experts of each token, int64 [T, num_used], and their weights, float32.

    Args:
        logits: [T, experts].
        bias: added to scores where experts are chosen, not in their weights; or None.
    """
    logits = logits.float()
    scores = logits.sigmoid() if routing.sigmoid else logits.softmax(-1)
    ranked = scores if bias is None else scores + bias.float()
    if routing.num_groups > 1:
        groups = ranked.view(len(ranked), routing.num_groups, -1)
        best = groups.topk(routing.group_top, -1)[0].sum(-1)
        used = best.topk(routing.num_groups_used, -1)[1]
        hidden = torch.ones_like(best, dtype=torch.bool).scatter(1, used, False)
        ranked = groups.masked_fill(hidden[..., None], -torch.inf).flatten(1)
    chosen = ranked.topk(routing.num_used, -1)[1]
    weights = scores.gather(1, chosen)
    if routing.normalised:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return chosen, weights * routing.scale


def mix_experts(
    x: torch.Tensor,
    chosen: torch.Tensor,
    weights: torch.Tensor,
    expert: Callable[[int, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The weighted sum of each token's experts: float32 [T, hidden].

    Tokens of one expert share its products. Which experts have tokens is read back from the device.

    Args:
        x: [T, hidden].
        chosen, weights: of ``route``.
        expert: the result of an expert for some rows.
    """
    result = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for index in torch.unique(chosen).tolist():
        tokens, places = torch.nonzero(chosen == index, as_tuple=True)
        rows = expert(index, x[tokens]).float()
        result.index_add_(0, tokens, rows * weights[tokens, places, None])
    return result
