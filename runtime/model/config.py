"""What a decoder of the Llama family, or of Gemma 3, looks like: its sizes and its variants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.errors import ModelLoadError, UnsupportedModelError
from ramet.runtime.model.files.model_file import ModelFile

Gate = Literal["silu", "gelu_tanh"]
"""What the gate of a feed-forward layer goes through: SwiGLU's or GeGLU's (Shazeer 2020), the
latter as its tanh approximation (Hendrycks and Gimpel 2016)."""

RopeLayout = Literal["interleaved", "half_split"]
"""Which values of a head are rotated together. ``interleaved``: 2i and 2i+1, the order in which
GGUF files of the llama architecture store the rows of q and k. ``half_split``: i and i + n/2."""


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
        rope_theta, rope_dim: base and number of rotated values a head (Su et al. 2021).
        rope_scale: positions are divided by it (linear scaling, Chen et al. 2023); 1 is none.
        rope_layout: see ``RopeLayout``.
        norm_eps: RMSNorm's epsilon (Zhang and Sennrich 2019).
        tied_embeddings: the head is the embedding; the file has no ``output.weight``.
        qkv_bias: q, k and v have biases (Qwen2).
        output_bias: the attention's output projection has a bias.
        qk_norm: q and k are RMS-normalised a head before rotation (Qwen3).
        gate: see ``Gate``.
        embedding_scale: embeddings are multiplied by it.
        query_scale: queries are multiplied by it, in place of ``head_dim ** -0.5``; 0: they aren't.
        post_norms: what attention and feed-forward give is RMS-normalised before it is added.
        windows: how many positions a token sees in each layer, itself included; 0: all. Empty:
            all in every layer.
        local_rope_theta: the base of rotary angles in layers with a window; without scaling.
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
    rope_theta: float
    rope_dim: int
    rope_scale: float
    rope_layout: RopeLayout
    norm_eps: float
    tied_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    qk_norm: bool
    gate: Gate = "silu"
    embedding_scale: float = 1.0
    query_scale: float = 0.0
    post_norms: bool = False
    windows: tuple[int, ...] = ()
    local_rope_theta: float = 0.0

    @property
    def attention_scale(self) -> float:
        """What scores are multiplied by."""
        return self.query_scale or self.head_dim**-0.5

    def window(self, layer: int) -> int:
        """How many positions a token sees in a layer, itself included; 0: all."""
        return self.windows[layer] if self.windows else 0

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
                    f"and the metadata asks for {shape}"
                )
        return config

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor that the forward pass reads, by its name in a GGUF file.

        ``rope_freqs.weight``, the per-frequency divisors of ``inverse_frequencies``, is optional
        and not among them.
        """
        hidden, q_size = self.hidden_size, self.num_heads * self.head_dim
        kv_size = self.num_kv_heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocab_size, hidden)}
        for layer in range(self.num_layers):
            layer_shapes: dict[str, tuple[int, ...]] = {
                "attn_norm.weight": (hidden,),
                "attn_q.weight": (q_size, hidden),
                "attn_k.weight": (kv_size, hidden),
                "attn_v.weight": (kv_size, hidden),
                "attn_output.weight": (hidden, q_size),
                "ffn_norm.weight": (hidden,),
                "ffn_gate.weight": (self.ffn_size, hidden),
                "ffn_up.weight": (self.ffn_size, hidden),
                "ffn_down.weight": (hidden, self.ffn_size),
            }
            if self.qkv_bias:
                layer_shapes |= {
                    "attn_q.bias": (q_size,),
                    "attn_k.bias": (kv_size,),
                    "attn_v.bias": (kv_size,),
                }
            if self.output_bias:
                layer_shapes["attn_output.bias"] = (hidden,)
            if self.qk_norm:
                layer_shapes |= {
                    "attn_q_norm.weight": (self.head_dim,),
                    "attn_k_norm.weight": (self.head_dim,),
                }
            if self.post_norms:
                layer_shapes |= {
                    "post_attention_norm.weight": (hidden,),
                    "post_ffw_norm.weight": (hidden,),
                }
            shapes |= {f"blk.{layer}.{name}": shape for name, shape in layer_shapes.items()}
        shapes["output_norm.weight"] = (hidden,)
        if not self.tied_embeddings:
            shapes["output.weight"] = (self.vocab_size, hidden)
        return shapes


@dataclass(frozen=True, slots=True)
class _Architecture:
    """``gemma``: scaled embeddings, norms behind layers, GeGLU, local layers (Gemma 3, 2025)."""

    rope_layout: RopeLayout
    qk_norm: bool = False
    gemma: bool = False


ARCHITECTURES: Mapping[str, _Architecture] = {
    "llama": _Architecture("interleaved"),
    "qwen2": _Architecture("half_split"),
    "qwen3": _Architecture("half_split", qk_norm=True),
    "gemma3": _Architecture("half_split", qk_norm=True, gemma=True),
}
"""The architectures that Ramet runs, by ``general.architecture``."""

_LOCAL_ROPE_THETA = 10_000.0
_PATTERN_LEN = 6
_LAYERS_OF_27B = 62


def inverse_frequencies(
    config: ModelConfig, file: ModelFile, *, local: bool = False
) -> npt.NDArray[np.float64]:
    """Rotary angles a position, float64[rope_dim / 2]: position p turns pair i by ``p * f[i]``.

    Includes linear scaling and the file's own divisors (Llama 3's long-context scaling is stored
    as ``rope_freqs.weight``). ``local``: those of layers with a window, which have neither.
    """
    exponents = np.arange(0, config.rope_dim, 2, dtype=np.float64) / config.rope_dim
    if local:
        return np.asarray(config.local_rope_theta**-exponents)
    frequencies = config.rope_theta**-exponents / config.rope_scale
    divisors = file.tensors.get("rope_freqs.weight")
    if divisors is not None:
        values = divisors.to_float32().astype(np.float64).ravel()
        if values.shape != frequencies.shape or not np.all((values > 0) & (values < np.inf)):
            raise ModelLoadError(f"{file.path}: rope_freqs.weight doesn't fit the head size")
        frequencies = frequencies / values
    return frequencies


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
    head_dim = integer("attention.key_length", max(1, hidden_size // num_heads))
    rope_dim = integer("rope.dimension_count", head_dim)
    if integer("attention.value_length", head_dim) != head_dim:
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
    config = ModelConfig(
        architecture=architecture,
        name=file.text("general.name", file.path.stem),
        num_layers=num_layers,
        hidden_size=hidden_size,
        ffn_size=integer("feed_forward_length"),
        vocab_size=embedding.shape[0],
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        max_context_len=integer("context_length"),
        rope_theta=file.number(prefix + "rope.freq_base", 10_000.0),
        rope_dim=rope_dim,
        rope_scale=_linear_scale(file, prefix),
        rope_layout=variant.rope_layout,
        norm_eps=file.number(prefix + "attention.layer_norm_rms_epsilon"),
        tied_embeddings="output.weight" not in file.tensors,
        qkv_bias="blk.0.attn_q.bias" in file.tensors,
        output_bias="blk.0.attn_output.bias" in file.tensors,
        qk_norm=variant.qk_norm,
    )
    if not variant.gemma:
        return config
    return dataclasses.replace(
        config,
        gate="gelu_tanh",
        embedding_scale=hidden_size**0.5,
        # The largest model's queries are scaled by another size than its heads', which its files
        # don't say.
        query_scale=(hidden_size / num_heads) ** -0.5 if num_layers == _LAYERS_OF_27B else 0.0,
        post_norms=True,
        windows=_windows(file, prefix, num_layers, integer("attention.sliding_window")),
        local_rope_theta=file.number(prefix + "rope.freq_base_swa", _LOCAL_ROPE_THETA),
    )


def _windows(file: ModelFile, prefix: str, num_layers: int, window: int) -> tuple[int, ...]:
    """Each layer's window. All but the last of every six layers have one, unless the file has
    another number than six, or says for each layer whether it has."""
    key = prefix + "attention.sliding_window_pattern"
    pattern = file.metadata.get(key, _PATTERN_LEN)
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        local = [(layer + 1) % pattern != 0 for layer in range(num_layers)]
    elif isinstance(pattern, np.ndarray) and len(pattern) == num_layers:
        local = [bool(each) for each in pattern]
    else:
        raise ModelLoadError(f"{file.path}: {key} is {pattern!r}")
    return tuple(window if each else 0 for each in local)


def _refuse_variants(file: ModelFile, prefix: str, variant: _Architecture) -> None:
    """Refuses what the family's files can ask for and the forward pass doesn't do."""
    metadata: Mapping[str, Any] = file.metadata
    refused = {
        "mixture of experts": metadata.get(prefix + "expert_count", 0),
        "sliding-window attention": not variant.gemma
        and metadata.get(prefix + "attention.sliding_window", 0),
        "attention soft-capping": metadata.get(prefix + "attn_logit_softcapping", 0),
        "logit soft-capping": metadata.get(prefix + "final_logit_softcapping", 0),
        "a scale on attention": metadata.get(prefix + "attention.scale", 0),
        "a scale on residuals": metadata.get(prefix + "residual_scale", 0),
        "a scale on embeddings": metadata.get(prefix + "embedding_scale", 0),
        "a scale on logits": metadata.get(prefix + "logit_scale", 0),
        "feed-forward biases": "blk.0.ffn_gate.bias" in file.tensors
        or "blk.0.ffn_up.bias" in file.tensors
        or "blk.0.ffn_down.bias" in file.tensors,
    }
    for what, present in refused.items():
        # It may be said for each layer.
        if present.any() if isinstance(present, np.ndarray) else present:
            raise UnsupportedModelError(f"{file.path}: {what} is not supported")


def _linear_scale(file: ModelFile, prefix: str) -> float:
    kind = file.text(prefix + "rope.scaling.type", "none")
    if kind == "none":
        return file.number(prefix + "rope.scale_linear", 1.0)
    if kind == "linear":
        return file.number(prefix + "rope.scaling.factor")
    raise UnsupportedModelError(f"{file.path}: rope scaling {kind!r} is not supported")
