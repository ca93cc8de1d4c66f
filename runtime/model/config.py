"""A decoder's sizes and variants, read from a model file; one declaration an architecture."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.architectures import (
    ARCHITECTURES,
    Architecture,
    Gate,
    NormKind,
    QkNorm,
    RopeLayout,
)
from ramet.runtime.model.experts import Experts, read_experts
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.latent import Latent, read_latent
from ramet.runtime.model.rotary import Rope, RopeKind, read_rope


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder's sizes; every length is in values or tokens.

    Attributes:
        architecture: the file's word for it, a key of ``ARCHITECTURES``.
        name: the file's own name for the model, for people.
        num_layers, hidden_size, ffn_size, vocab_size: as usual; ``vocab_size`` counts embedding
            rows.
        num_heads, num_kv_heads, head_dim: each kv head serves ``num_heads / num_kv_heads`` heads.
        max_context_len: the longest sequence that the model was made for.
        rope: rotary embeddings.
        rope_layout: see ``RopeLayout``.
        norm, norm_bias: the kind of norms; those of the residual stream have biases.
        norm_eps: epsilon of the residual stream's norms.
        head_norm_eps: that of the norms of q and k.
        tied_embeddings: the head is the embedding; the file has no ``output.weight``.
        qkv_bias: q, k and v have biases (Qwen2).
        output_bias: the attention's output projection has a bias.
        qk_norm: see ``QkNorm``.
        gate: see ``Gate``.
        embedding_scale: embeddings are multiplied by it.
        query_scale: queries are multiplied by it, in place of ``head_dim ** -0.5``; 0: they aren't.
        pre_norms, post_norms, parallel: see ``Architecture``.
        windows: how many positions a token sees in each layer, itself included; 0: all. Empty:
            all in every layer.
        unrotated: layers whose q and k are not rotated.
        logit_scale: logits are multiplied by it; the final norm's weights are, to that end.
        attention_cap, logit_cap: scores and logits are kept between plus and minus it by a tanh
            (Gemma 2, 2024); 0: they aren't.
        sinks: see ``Architecture``.
        experts: a mixture of experts, or None.
        latent: multi-head latent attention, or None. Its heads have ``head_dim`` values, of which
            those of values that it doesn't have are 0, and keys and values are kept for each head.
    """

    architecture: str
    name: str
    num_layers: int
    hidden_size: int
    ffn_size: int
    vocab_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_context_len: int
    rope: Rope
    rope_layout: RopeLayout
    norm_eps: float
    head_norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    qk_norm: QkNorm
    gate: Gate = "silu"
    norm: NormKind = "rms"
    norm_bias: bool = False
    pre_norms: bool = True
    parallel: bool = False
    embedding_scale: float = 1.0
    query_scale: float = 0.0
    post_norms: bool = False
    windows: tuple[int, ...] = ()
    unrotated: tuple[int, ...] = ()
    logit_scale: float = 1.0
    attention_cap: float = 0.0
    logit_cap: float = 0.0
    sinks: bool = False
    experts: Experts | None = None
    latent: Latent | None = None

    @property
    def attention_scale(self) -> float:
        """The scale of attention scores."""
        return self.query_scale or self.head_dim**-0.5

    def window(self, layer: int) -> int:
        """The attention window of a layer in tokens, the token itself included; 0: unlimited."""
        return self.windows[layer] if self.windows else 0

    def has_experts(self, layer: int) -> bool:
        """Whether a layer has experts, not one feed-forward layer."""
        return self.experts is not None and layer >= self.experts.first_dense

    def rope_kind(self, layer: int) -> RopeKind:
        """The rotary angles of a layer."""
        if layer in self.unrotated:
            return "none"
        return "local" if self.rope.local_theta and self.window(layer) else "full"

    @property
    def rope_kinds(self) -> tuple[RopeKind, ...]:
        """The kinds that any layer uses, each once."""
        return tuple(dict.fromkeys(map(self.rope_kind, range(self.num_layers))))

    @property
    def description(self) -> str:
        """The model's name and size, for logs and the CLI."""
        return f"{self.name} ({self.architecture}, {self.num_layers} layers of {self.hidden_size})"

    @classmethod
    def from_gguf(cls, file: ModelFile) -> ModelConfig:
        """Reads the configuration and checks that every tensor it implies is there, in shape.

        Raises ``UnsupportedModelError`` for an architecture or a variant that Ramet doesn't run,
        ``ModelLoadError`` for a file that contradicts itself.
        """
        config = _read(file)
        for name, shape in config.tensor_shapes().items():
            if file.tensor(name).shape != shape:
                raise ModelLoadError(
                    f"{file.path}: the tensor {name!r} has the shape {file.tensor(name).shape}, "
                    f"and the metadata requires {shape}"
                )
        return config

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor that the forward pass reads, by its name in a GGUF file.

        The divisors that ``inverse_frequencies`` reads are optional and not among them.
        """
        hidden = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_layers):
            layer_shapes = self._norm_shapes() | self._attention_shapes()
            if self.experts is not None and self.has_experts(layer):
                layer_shapes |= self.experts.tensor_shapes(hidden)
            else:
                layer_shapes |= {
                    "ffn_gate.weight": (self.ffn_size, hidden),
                    "ffn_up.weight": (self.ffn_size, hidden),
                    "ffn_down.weight": (hidden, self.ffn_size),
                }
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in layer_shapes.items()}
        shapes["output_norm.weight"] = (hidden,)
        if self.norm_bias:
            shapes["output_norm.bias"] = (hidden,)
        if not self.tied_embeddings:
            shapes["output.weight"] = (self.vocab_size, hidden)
        return shapes

    def _norm_shapes(self) -> dict[str, tuple[int, ...]]:
        names = ["attn_norm"] * self.pre_norms
        names += ["ffn_norm"] * (self.pre_norms and not self.parallel)
        names += ["post_attention_norm", "post_ffw_norm"] * self.post_norms
        kinds = ("weight", "bias") if self.norm_bias else ("weight",)
        return {f"{name}.{kind}": (self.hidden_size,) for name in names for kind in kinds}

    def _attention_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, dim, num_heads = self.hidden_size, self.head_dim, self.num_heads
        if self.latent is not None:
            return self.latent.tensor_shapes(hidden, num_heads)
        sizes = {"q": num_heads * dim, "k": self.num_kv_heads * dim, "v": self.num_kv_heads * dim}
        shapes: dict[str, tuple[int, ...]] = {
            f"attn_{name}.weight": (size, hidden) for name, size in sizes.items()
        }
        shapes["attn_output.weight"] = (hidden, sizes["q"])
        if self.qkv_bias:
            shapes |= {f"attn_{name}.bias": (size,) for name, size in sizes.items()}
        if self.output_bias:
            shapes["attn_output.bias"] = (hidden,)
        if self.sinks:
            shapes["attn_sinks.weight"] = (num_heads,)
        for name in ("q", "k"):
            norms: dict[QkNorm, tuple[int, ...]] = {
                "head": (dim,),
                "each_head": (sizes[name] // dim, dim),
                "all_heads": (sizes[name],),
            }
            if self.qk_norm != "none":
                shapes[f"attn_{name}_norm.weight"] = norms[self.qk_norm]
        return shapes


_LEAST_SCALE = 1e-6
_LOCAL_ROPE_THETA = 10_000.0


def _read(file: ModelFile) -> ModelConfig:
    architecture = file.text("general.architecture")
    variant = ARCHITECTURES.get(architecture)
    if variant is None:
        raise UnsupportedModelError(
            f"{file.path}: the architecture {architecture!r} is not supported; "
            f"Ramet runs {', '.join(ARCHITECTURES)}"
        )
    prefix = f"{architecture}."

    def integer(key: str, default: int | None = None) -> int:
        if isinstance(file.metadata.get(prefix + key), np.ndarray):
            raise UnsupportedModelError(f"{file.path}: {prefix + key} differs between layers")
        value = file.integer(prefix + key, default)
        if value == 0:
            raise ModelLoadError(f"{file.path}: {prefix + key} is 0")
        return value

    _refuse_variants(file, prefix, variant)
    embedding = file.tensor("token_embd.weight")
    hidden_size, num_heads = integer("embedding_length"), integer("attention.head_count")
    num_kv_heads = integer("attention.head_count_kv", num_heads)
    latent = read_latent(file, prefix) if variant.latent else None
    if latent is not None:
        num_kv_heads, head_dim = num_heads, latent.head_dim
    else:
        head_dim = integer("attention.key_length", max(1, hidden_size // num_heads))
    rope_dim = integer("rope.dimension_count", head_dim)
    if latent is None and integer("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModelError(f"{file.path}: keys and values differ in size")
    if num_heads % num_kv_heads or rope_dim > head_dim or rope_dim % 2:
        raise ModelLoadError(
            f"{file.path}: {num_heads} heads, {num_kv_heads} kv heads and {rope_dim} of "
            f"{head_dim} rotated values don't fit together"
        )
    num_layers = integer("block_count")
    if num_layers > len(file.tensors):  # before anything is made for each layer
        raise ModelLoadError(
            f"{file.path}: {num_layers} layers can't be in {len(file.tensors)} tensors"
        )
    rope = read_rope(file, prefix, rope_dim, truncates=variant.truncates_yarn)
    if variant.local_rope:
        local_theta = file.number(prefix + "rope.freq_base_swa", _LOCAL_ROPE_THETA)
        rope = dataclasses.replace(rope, local_theta=local_theta)
    if latent is not None and rope.yarn is not None:  # it scales queries instead
        own_magnitude = file.number(prefix + "rope.scaling.magnitude", 1.0)
        rope = dataclasses.replace(rope, magnitude=own_magnitude)
    kind = "layer_norm_rms_epsilon" if variant.norm == "rms" else "layer_norm_epsilon"
    eps = file.number(f"{prefix}attention.{kind}")
    # A scale on what layers add is one on the embedding instead: norms undo what scales their
    # input, but for epsilon.
    residual_scale = _stated(file, prefix + "residual_scale", 1.0)
    embedding_scale = _stated(file, prefix + "embedding_scale", 1.0)
    query_scale = _stated(file, prefix + "attention.scale", 0.0)
    if not query_scale and num_layers == variant.layers_of_unusual:
        query_scale = (hidden_size / num_heads) ** -0.5
    if latent is not None:
        query_scale = head_dim**-0.5 * _yarn_query_factor(file, prefix, rope) ** 2
    logit_scale = _stated(file, prefix + "logit_scale", 1.0)
    qk_norm = variant.qk_norm
    if qk_norm == "each_head" and "blk.0.attn_q_norm.weight" not in file.tensors:
        qk_norm = "none"
    parallel = variant.parallel
    if parallel is None:
        parallel = "blk.0.ffn_norm.weight" not in file.tensors
    experts = read_experts(file, prefix, normalised=variant.normalises_experts)
    is_all_experts = experts is not None and not experts.first_dense
    return ModelConfig(
        architecture=architecture,
        name=file.text("general.name", file.path.stem),
        num_layers=num_layers,
        hidden_size=hidden_size,
        ffn_size=integer("feed_forward_length", 1 if is_all_experts else None),
        vocab_size=embedding.shape[0],
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_context_len=min(integer("context_length"), rope.max_len or sys.maxsize),
        rope=rope,
        rope_layout=variant.rope_layout,
        norm_eps=eps / residual_scale**2,
        head_norm_eps=eps,
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=qk_norm,
        gate=variant.gate,
        norm=variant.norm,
        norm_bias="output_norm.bias" in file.tensors,
        pre_norms=variant.pre_norms,
        parallel=parallel,
        embedding_scale=(hidden_size**0.5 if variant.scaled_embedding else embedding_scale)
        / residual_scale,
        query_scale=query_scale,
        post_norms=variant.post_norms,
        windows=_windows(file, prefix, num_layers, variant),
        unrotated=_unrotated(file, prefix, num_layers, variant),
        logit_scale=logit_scale if variant.multiplies_logits else 1.0 / logit_scale,
        attention_cap=_stated(file, prefix + "attn_logit_softcapping", 0.0),
        logit_cap=_stated(file, prefix + "final_logit_softcapping", 0.0),
        sinks=variant.sinks,
        experts=experts,
        latent=latent,
    )


def _yarn_query_factor(file: ModelFile, prefix: str, rope: Rope) -> float:
    """What YaRN multiplies both queries and keys by, without what sines have."""
    key = prefix + "rope.scaling.yarn_log_multiplier"
    if rope.yarn is None or not file.metadata.get(key):
        return 1.0
    return 1.0 + file.number(key) * math.log(rope.yarn.factor)


def _stated(file: ModelFile, key: str, default: float) -> float:
    """A number; the default where the file has none, or 0."""
    if isinstance(file.metadata.get(key, 0), int | float) and not file.metadata.get(key):
        return default
    value = file.number(key)
    if not _LEAST_SCALE <= value <= 1 / _LEAST_SCALE:
        raise ModelLoadError(f"{file.path}: {key} is {value}, which is out of range")
    return value


def _unrotated(
    file: ModelFile, prefix: str, num_layers: int, variant: Architecture
) -> tuple[int, ...]:
    if variant.rotates_windows_only:
        windows = _windows(file, prefix, num_layers, variant) or (0,) * num_layers
        return tuple(layer for layer, window in enumerate(windows) if not window)
    key = prefix + "rope.layers"  # 0 where a layer is not rotated
    if variant.unrotated_every and key in file.metadata:
        return tuple(np.flatnonzero(file.numbers(key)[:num_layers] == 0).tolist())
    every = variant.unrotated_every
    return tuple(range(every - 1, num_layers, every)) if every else ()


def _windows(
    file: ModelFile, prefix: str, num_layers: int, variant: Architecture
) -> tuple[int, ...]:
    """Each layer's window; empty where no layer has one.

    The file may have another pattern than the architecture, as the number of layers of which all
    but the last have a window, or for each layer.
    """
    size_key = prefix + "attention.sliding_window"
    window = file.integer(size_key, None if variant.local_pattern else 0)
    if not window:
        if variant.local_pattern:
            raise ModelLoadError(f"{file.path}: {size_key} is 0")
        return ()
    key = prefix + "attention.sliding_window_pattern"
    pattern = file.metadata.get(key, variant.local_pattern)
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern >= 0:
        local = [pattern == 0 or (layer + 1) % pattern != 0 for layer in range(num_layers)]
    elif isinstance(pattern, np.ndarray) and len(pattern) == num_layers:
        local = [bool(each) for each in pattern]
    else:
        raise ModelLoadError(f"{file.path}: {key} is {pattern!r}")
    return tuple(window if each else 0 for each in local) if any(local) else ()


def _refuse_variants(file: ModelFile, prefix: str, variant: Architecture) -> None:
    """Refuses what the family's files can ask for and the forward pass doesn't do."""
    metadata: Mapping[str, Any] = file.metadata
    refused = {
        "attention soft-capping": not variant.has_caps
        and metadata.get(prefix + "attn_logit_softcapping", 0),
        "logit soft-capping": not variant.has_caps
        and metadata.get(prefix + "final_logit_softcapping", 0),
        "feed-forward biases": "blk.0.ffn_gate.bias" in file.tensors
        or "blk.0.ffn_up.bias" in file.tensors
        or "blk.0.ffn_down.bias" in file.tensors,
    }
    for what, present in refused.items():
        # It may be said for each layer.
        if present.any() if isinstance(present, np.ndarray) else present:
            raise UnsupportedModelError(f"{file.path}: {what} is not supported")
