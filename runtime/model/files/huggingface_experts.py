"""A mixture of experts in a ``config.json``, as metadata under GGUF's keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ramet.runtime.api.errors import UnsupportedModelError
from ramet.runtime.model.files.model_file import MetadataValue

_COUNTS = ("num_local_experts", "num_experts", "n_routed_experts")
_KEYS = {
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
}


def expert_metadata(path: Path, config: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Metadata without the architecture's prefix; none for a model without experts.

    Raises ``UnsupportedModelError`` for layers with and without experts in another order than that
    the first ones have none.
    """
    counts = [int(config[key]) for key in _COUNTS if config.get(key)]
    if not counts:
        return {}
    if config.get("decoder_sparse_step", 1) != 1 or config.get("moe_layer_freq", 1) != 1:
        raise UnsupportedModelError(f"{path}: experts in every other layer are not supported")
    if config.get("mlp_only_layers"):
        raise UnsupportedModelError(f"{path}: mlp_only_layers are not supported")
    values: dict[str, MetadataValue] = {"expert_count": counts[0]}
    values |= {ours: int(config[key]) for key, ours in _KEYS.items() if config.get(key)}
    if config.get("norm_topk_prob") is not None:
        values["expert_weights_norm"] = bool(config["norm_topk_prob"])
    if config.get("routed_scaling_factor") is not None:
        values["expert_weights_scale"] = float(config["routed_scaling_factor"])
    if config.get("model_type") == "deepseek_v3":
        values["expert_gating_func"] = 2
    method = config.get("topk_method")
    if config.get("n_group") and method in (None, "group_limited_greedy", "noaux_tc"):
        values["expert_group_count"] = int(config["n_group"])
        values["expert_group_used_count"] = int(config["topk_group"])
    return values
