"""Rotary scalings and windows of a ``config.json``, as metadata under GGUF's keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import MetadataValue


class RopeMetadata(NamedTuple):
    """Metadata without the architecture's prefix, and divisors of the angles, if there are any,
    with the name of their tensor."""

    values: dict[str, MetadataValue]
    divisors: npt.NDArray[np.float64] | None = None
    name: str = "rope_freqs.weight"


def rope_metadata(
    path: Path, config: Mapping[str, Any], context_len: int, head_dim: int
) -> RopeMetadata:
    """A configuration's rotary embeddings.

    Args:
        path: the folder, for error messages.
        context_len: the longest sequence, in tokens.

    Raises ``UnsupportedModelError`` for a scaling that Ramet doesn't have.
    """
    stated = dict(config.get("rope_parameters") or {})
    local = stated.pop("sliding_attention", None)
    rope = {"rope_theta": config.get("rope_theta"), **(stated.pop("full_attention", None) or {})}
    rope |= stated
    rope |= config.get("rope_scaling") or {}
    theta = float(rope["rope_theta"] or 10_000.0)
    part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    values: dict[str, MetadataValue] = {
        "rope.dimension_count": head_dim if part is None else int(head_dim * part),
        "rope.freq_base": theta,
    }
    local_theta = (local or {}).get("rope_theta", config.get("rope_local_base_freq"))
    if local_theta is not None:
        values["rope.freq_base_swa"] = float(local_theta)
    if local and local.get("rope_type", "default") != "default":
        raise UnsupportedModelError(f"{path}: rope scaling of layers with a window")
    if (no_rope := config.get("no_rope_layers")) is not None:
        values["rope.layers"] = np.array(no_rope, np.int32)
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    original = rope.get("original_max_position_embeddings")
    if original is None:
        original = config.get("original_max_position_embeddings", context_len)
    original = int(original)
    if kind == "default":
        return RopeMetadata(values)
    if kind == "linear":
        values |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
        return RopeMetadata(values)
    if kind == "llama3":
        return RopeMetadata(values, _llama3_divisors(theta, head_dim, rope))
    if kind == "yarn":
        return RopeMetadata(values | _yarn(rope, original))
    if kind in ("longrope", "su"):
        factor = context_len / original
        magnitude = rope.get("attention_factor")
        if magnitude is None:
            longer = factor > 1
            magnitude = math.sqrt(1 + math.log(factor) / math.log(original)) if longer else 1.0
        values |= {
            "rope.scaling.attn_factor": float(magnitude),
            "rope.scaling.original_context_length": original,
        }
        divisors = np.array(rope["short_factor"], np.float64)
        return RopeMetadata(values, divisors, "rope_factors_short.weight")
    raise UnsupportedModelError(f"{path}: rope scaling {kind!r} is not supported")


def _yarn(rope: Mapping[str, Any], original: int) -> dict[str, MetadataValue]:
    factor = float(rope["factor"])

    def scale(of: float) -> float:
        return 0.1 * of * math.log(factor) + 1.0 if factor > 1 else 1.0

    magnitude = rope.get("attention_factor")
    if magnitude is None:
        own, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
        magnitude = scale(own) / scale(all_dim) if own and all_dim else scale(1.0)
    values: dict[str, MetadataValue] = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": original,
        "rope.scaling.yarn_beta_fast": float(rope.get("beta_fast") or 32.0),
        "rope.scaling.yarn_beta_slow": float(rope.get("beta_slow") or 1.0),
        "rope.scaling.magnitude": float(magnitude),
        "rope.scaling.truncate": bool(rope.get("truncate", True)),
    }
    if rope.get("mscale_all_dim"):
        values["rope.scaling.yarn_log_multiplier"] = 0.1 * float(rope["mscale_all_dim"])
    return values


def latent_metadata(config: Mapping[str, Any]) -> dict[str, MetadataValue]:
    """Sizes of multi-head latent attention."""
    plain, rope = int(config["qk_nope_head_dim"]), int(config["qk_rope_head_dim"])
    values: dict[str, MetadataValue] = {
        "attention.kv_lora_rank": int(config["kv_lora_rank"]),
        "attention.key_length": plain + rope,
        "attention.value_length": int(config["v_head_dim"]),
    }
    if config.get("q_lora_rank"):
        values["attention.q_lora_rank"] = int(config["q_lora_rank"])
    return values


def window_metadata(config: Mapping[str, Any], num_layers: int) -> dict[str, MetadataValue]:
    """The attention window of a layer, if it has one."""
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if not window:
        return {}
    values: dict[str, MetadataValue] = {"attention.sliding_window": window}
    kinds = config.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != num_layers:
            raise ModelLoadError("config.json: layer_types doesn't name each layer's kind")
        local = [kind == "sliding_attention" for kind in kinds]
        values["attention.sliding_window_pattern"] = np.array(local)
    elif isinstance(pattern := config.get("sliding_window_pattern"), int):
        values["attention.sliding_window_pattern"] = pattern
    return values


@np.errstate(divide="raise", over="raise", invalid="raise")
def _llama3_divisors(
    theta: float, head_dim: int, rope: Mapping[str, Any]
) -> npt.NDArray[np.float64]:
    """Llama 3.1's long-context scaling: slow rotations are slowed down by ``factor``, fast ones
    are kept, and those in between are mixed."""
    factor, low, high = (
        float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor")
    )
    original_len = float(rope["original_max_position_embeddings"])
    frequencies = theta ** -(np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = original_len * frequencies / (2 * np.pi)  # within the original context
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - kept) / factor + kept))
