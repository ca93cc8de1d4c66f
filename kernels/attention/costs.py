"""What attention costs on each kind of device, as measured."""

from __future__ import annotations

from ramet.kernels.attention.plan import AttentionCosts
from ramet.kernels.triton_support.dispatch import data, nearest


def attention_costs(arch: str) -> AttentionCosts:
    """The cost coefficients of an architecture, from ``data/attention_costs.json``."""
    return AttentionCosts(**nearest(data("attention_costs.json"), arch)["costs"])
