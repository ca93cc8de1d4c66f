"""Properties of architectures that files' metadata don't state: one declaration each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Gate = Literal["silu", "gelu_tanh", "clamped"]
"""What the gate of a feed-forward layer goes through: SwiGLU's or GeGLU's (Shazeer 2020), the
latter as its tanh approximation (Hendrycks and Gimpel 2016). ``clamped``: gpt-oss's, of gate and up
within 7: ``gate * sigmoid(1.702 * gate) * (up + 1)``."""

RopeLayout = Literal["interleaved", "half_split"]
"""Which values of a head are rotated together. ``interleaved``: 2i and 2i+1, the order in which
GGUF files of the llama architecture store the rows of q and k. ``half_split``: i and i + n/2."""

NormKind = Literal["rms", "layer"]
"""RMSNorm (Zhang and Sennrich 2019), or LayerNorm (Ba et al. 2016), which subtracts the mean."""

QkNorm = Literal["none", "head", "each_head", "all_heads"]
"""How q and k are normalised before rotation: not; each head by one weight for all; each head by
its own weights; all heads as one row."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A family's variant.

    Attributes:
        norm: the kind of all norms.
        qk_norm: see ``QkNorm``; ``each_head`` only where the file has such tensors.
        pre_norms: attention and feed-forward read normalised rows.
        post_norms: what they give is normalised before it is added.
        parallel: both read the same norm's output, and both are added to what it read. None: where
            a file has no second norm.
        gate: see ``Gate``.
        scaled_embedding: embeddings are multiplied by the root of the hidden size.
        local_pattern: of each group of this many layers, all but the last have the window that
            the file states; 0: all layers have it.
        local_rope: layers with a window have rotary angles of their own.
        unrotated_every: of each group of this many layers, the last is not rotated; 0: all are.
        rotates_windows_only: layers without a window are not rotated.
        layers_of_unusual: a model with this many layers scales queries by the hidden size a head.
        has_caps: scores and logits may be capped.
        multiplies_logits: the file's ``logit_scale`` multiplies logits; otherwise it divides them.
        normalises_experts: where a file doesn't say whether the weights of a token's experts are
            divided by their sum; None: the architecture has no experts.
        sinks: each head has a score without a value, which takes a part of the weights.
        latent: multi-head latent attention.
        truncates_yarn: the bounds of YaRN's parts are whole numbers.
    """

    rope_layout: RopeLayout
    norm: NormKind = "rms"
    qk_norm: QkNorm = "none"
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool | None = False
    gate: Gate = "silu"
    scaled_embedding: bool = False
    local_pattern: int = 0
    local_rope: bool = False
    unrotated_every: int = 0
    rotates_windows_only: bool = False
    layers_of_unusual: int = 0
    has_caps: bool = False
    multiplies_logits: bool = False
    normalises_experts: bool | None = None
    sinks: bool = False
    latent: bool = False
    truncates_yarn: bool = True


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture("interleaved", normalises_experts=True),
    "granite": Architecture("interleaved"),
    "smollm3": Architecture("interleaved", unrotated_every=4),
    "phi3": Architecture("half_split"),
    "qwen2": Architecture("half_split"),
    "qwen3": Architecture("half_split", qk_norm="head"),
    "olmo2": Architecture("half_split", qk_norm="all_heads", pre_norms=False, post_norms=True),
    "stablelm": Architecture("half_split", norm="layer", qk_norm="each_head", parallel=None),
    "command-r": Architecture(
        "interleaved", norm="layer", qk_norm="each_head", parallel=True, multiplies_logits=True
    ),
    "cohere2": Architecture(
        "interleaved",
        norm="layer",
        parallel=True,
        multiplies_logits=True,
        local_pattern=4,
        rotates_windows_only=True,
    ),
    "qwen2moe": Architecture("half_split", normalises_experts=False),
    "qwen3moe": Architecture("half_split", qk_norm="head", normalises_experts=True),
    "granitemoe": Architecture("interleaved", normalises_experts=True),
    "gpt-oss": Architecture(
        "half_split",
        gate="clamped",
        local_pattern=2,
        normalises_experts=True,
        sinks=True,
        truncates_yarn=False,
    ),
    "deepseek2": Architecture("interleaved", normalises_experts=False, latent=True),
    "gemma2": Architecture(
        "half_split",
        post_norms=True,
        gate="gelu_tanh",
        scaled_embedding=True,
        local_pattern=2,
        layers_of_unusual=46,
        has_caps=True,
    ),
    "gemma3": Architecture(
        "half_split",
        qk_norm="head",
        post_norms=True,
        gate="gelu_tanh",
        scaled_embedding=True,
        local_pattern=6,
        local_rope=True,
        layers_of_unusual=62,
    ),
}
"""The architectures that Ramet runs, by ``general.architecture``."""
