"""A model's weights, laid out for the CPU kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.kernels.linear.cpu_weights import GROUP, PackedWeight
from ramet.runtime.api.errors import UnsupportedModelError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.rotary import RopeKind

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LinearWeight:
    """A linear layer: its packed weight, and its bias padded to whole blocks of rows."""

    weight: PackedWeight
    bias: Float32Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CpuNorm:
    """A norm's weight and its bias or None."""

    weight: Float32Array
    bias: Float32Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CpuAttention:
    """Attention; ``query``, ``key`` and their norms are in half-split rotary order."""

    query: LinearWeight
    key: LinearWeight
    value: LinearWeight
    query_norm: Float32Array | None
    key_norm: Float32Array | None
    output: LinearWeight
    sinks: Float32Array | None


@dataclass(frozen=True, slots=True, eq=False)
class CpuLatentAttention:
    """Multi-head latent attention. Rotated values are the first of a head of ``query``, and come
    last in ``short``, in half-split order; ``key`` makes the others."""

    short_query: LinearWeight | None
    short_query_norm: Float32Array | None
    query: LinearWeight
    short: LinearWeight
    short_norm: Float32Array
    key: LinearWeight
    value: LinearWeight
    output: LinearWeight


@dataclass(frozen=True, slots=True, eq=False)
class CpuFeedForward:
    """A gated feed-forward layer; of experts, the rows of one follow those of the one before."""

    gate: LinearWeight
    up: LinearWeight
    down: LinearWeight


@dataclass(frozen=True, slots=True, eq=False)
class CpuExperts:
    """A mixture of experts; ``shared`` is what every token uses, ``shared_gate`` a vector."""

    router: LinearWeight
    selection_bias: Float32Array | None
    experts: CpuFeedForward
    shared: CpuFeedForward | None
    shared_gate: Float32Array | None


@dataclass(frozen=True, slots=True, eq=False)
class CpuLayer:
    """One decoder layer; the ``post`` norms are of what is added to the residual stream. Norms that
    it doesn't have are None."""

    attention_norm: CpuNorm | None
    attention: CpuAttention | CpuLatentAttention
    attention_post_norm: CpuNorm | None
    ffn_norm: CpuNorm | None
    feed_forward: CpuFeedForward | CpuExperts
    ffn_post_norm: CpuNorm | None


@dataclass(frozen=True, slots=True, eq=False)
class CpuWeights:
    """Everything of a model file that the forward pass reads; nothing of the file is kept."""

    embedding: PackedWeight
    layers: tuple[CpuLayer, ...]
    output_norm: CpuNorm
    head: LinearWeight
    frequencies: dict[RopeKind, npt.NDArray[np.float64]]  # [rope_dim / 2], radians a position


def check_sizes(file: ModelFile, config: ModelConfig) -> None:
    """Raises ``UnsupportedModelError`` for sizes that the kernels don't take."""
    sizes = {
        "hidden size": (config.hidden_size, GROUP),
        "feed-forward size": (config.ffn_size, GROUP),
        "attention size": (config.num_heads * config.head_dim, GROUP),
        "head size": (config.head_dim, 16),
    }
    if config.experts is not None:
        sizes["experts' size"] = (config.experts.ffn_size, GROUP)
        sizes["shared expert's size"] = (config.experts.shared_size, GROUP)
        if not config.experts.first_dense:
            del sizes["feed-forward size"]
    if (latent := config.latent) is not None:
        sizes |= {
            "rank of latent attention": (latent.rank, GROUP),
            "rank of queries": (latent.query_rank, GROUP),
            "attention size": (config.num_heads * latent.value_dim, GROUP),
            "size of values": (latent.value_dim, 16),
            "rotated size": (latent.rope_dim, 16),
        }
    for name, (size, multiple) in sizes.items():
        if size % multiple:
            raise UnsupportedModelError(
                f"{file.path}: the CPU kernels need a {name} that is a multiple of {multiple}, "
                f"and it is {size}"
            )


def has_float_layers(weights: CpuWeights) -> bool:
    """Whether linear layers, routers of experts aside, read float32 activations only."""
    routers = {
        id(layer.feed_forward.router.weight)
        for layer in weights.layers
        if isinstance(layer.feed_forward, CpuExperts)
    }
    layers = packed_weights((weights.layers, weights.head))
    return any(each.form.is_float and id(each) not in routers for each in layers)


def packed_weights(part: object) -> Iterator[PackedWeight]:
    """All packed weights of a model's weights, or of a part of them."""
    if isinstance(part, PackedWeight):
        yield part
    elif isinstance(part, tuple):
        for each in part:
            yield from packed_weights(each)
    elif dataclasses.is_dataclass(part):
        for field in dataclasses.fields(part):
            yield from packed_weights(getattr(part, field.name))
