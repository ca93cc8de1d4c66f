"""A model's weights, laid out for the CPU kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu_support.buffers import Arena
from ramet.kernels.linear.cpu_weights import GROUP, PackedWeight, pack
from ramet.runtime.api.errors import UnsupportedModelError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.rotary import RopeKind, inverse_frequencies

Float32Array = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class LinearWeight:
    """A linear layer: its packed weight, and its bias padded to whole blocks of rows."""

    weight: PackedWeight
    bias: Float32Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CpuLayer:
    """One decoder layer. ``query``, ``key`` and their norms are in half-split rotary order; the
    ``post`` norms are of what is added to the residual stream."""

    attention_norm: Float32Array
    query: LinearWeight
    key: LinearWeight
    value: LinearWeight
    query_norm: Float32Array | None
    key_norm: Float32Array | None
    attention_output: LinearWeight
    attention_post_norm: Float32Array | None
    ffn_norm: Float32Array
    gate: LinearWeight
    up: LinearWeight
    down: LinearWeight
    ffn_post_norm: Float32Array | None


@dataclass(frozen=True, slots=True, eq=False)
class CpuWeights:
    """Everything of a model file that the forward pass reads; nothing of the file is kept."""

    embedding: PackedWeight
    layers: tuple[CpuLayer, ...]
    output_norm: Float32Array
    head: LinearWeight
    frequencies: dict[RopeKind, npt.NDArray[np.float64]]  # [rope_dim / 2], radians a position


def load_cpu_weights(
    file: ModelFile, config: ModelConfig, *, exact: bool, middles: bool
) -> CpuWeights:
    """Packs a file's tensors, with ``middles`` in place of minimums.

    With ``exact``, tensors stored as floats stay float32; otherwise they become 8-bit values with
    a scale a group of 32. Raises ``UnsupportedModelError`` for sizes that the kernels don't take.
    """
    _check_sizes(file, config)
    loader = _Loader(file, config, exact, middles)
    layers = tuple(loader.layer(index) for index in range(config.num_layers))
    embedding = loader.packed("token_embd.weight")
    head = embedding if config.tied_embeddings else loader.packed("output.weight")
    return CpuWeights(
        embedding=embedding,
        layers=layers,
        output_norm=loader.vector("output_norm.weight") * np.float32(config.logit_scale),
        head=LinearWeight(head),
        frequencies={
            kind: inverse_frequencies(config.rope, file, kind) for kind in config.rope_kinds
        },
    )


def _check_sizes(file: ModelFile, config: ModelConfig) -> None:
    if config.attention_cap or config.logit_cap:
        raise UnsupportedModelError(
            f"{file.path}: soft-capping ({config.architecture!r}) is not in the CPU kernels; "
            "choose a GPU",
            param="device",
        )
    sizes = {
        "hidden size": (config.hidden_size, GROUP),
        "feed-forward size": (config.ffn_size, GROUP),
        "attention size": (config.num_heads * config.head_dim, GROUP),
        "head size": (config.head_dim, 16),
    }
    for name, (size, multiple) in sizes.items():
        if size % multiple:
            raise UnsupportedModelError(
                f"{file.path}: the CPU kernels need a {name} that is a multiple of {multiple}, "
                f"and it is {size}"
            )


class _Loader:
    def __init__(self, file: ModelFile, config: ModelConfig, exact: bool, middles: bool) -> None:
        self._file = file
        self._config = config
        self._exact = exact
        self._middles = middles
        self._arena = Arena()  # weights are streamed from memory step by step

    def vector(self, name: str) -> Float32Array:
        return np.ascontiguousarray(self._file.tensor(name).to_float32().ravel())

    def packed(self, name: str, order: npt.NDArray[np.intp] | None = None) -> PackedWeight:
        tensor = self._file.tensor(name)
        rows, columns = tensor.shape
        data = tensor.data.reshape(rows, -1)
        if order is not None:
            data = data[order]
        return pack(
            tensor.type,
            data,
            (rows, columns),
            exact=self._exact,
            middles=self._middles,
            allocate=self._arena.empty,
        )

    def linear(
        self, prefix: str, order: npt.NDArray[np.intp] | None = None, *, bias: bool = False
    ) -> LinearWeight:
        weight = self.packed(f"{prefix}.weight", order)
        if not bias:
            return LinearWeight(weight)
        values = self.vector(f"{prefix}.bias")
        padded = np.zeros(16 * weight.num_blocks, np.float32)
        padded[: len(values)] = values if order is None else values[order]
        return LinearWeight(weight, padded)

    def layer(self, index: int) -> CpuLayer:
        config, prefix = self._config, f"blk.{index}."
        head_order = self._head_order()
        head_norms: list[Float32Array | None] = [None, None]
        if config.qk_norm:
            names = (f"{prefix}attn_q_norm.weight", f"{prefix}attn_k_norm.weight")
            head_norms = [np.ascontiguousarray(self.vector(name)[head_order]) for name in names]
        query_order, key_order = (
            self._row_order(head_order, heads) for heads in (config.num_heads, config.num_kv_heads)
        )
        post_norms: list[Float32Array | None] = [None, None]
        if config.post_norms:
            names = (f"{prefix}post_attention_norm.weight", f"{prefix}post_ffw_norm.weight")
            post_norms = [self.vector(name) for name in names]
        return CpuLayer(
            attention_norm=self.vector(f"{prefix}attn_norm.weight"),
            query=self.linear(f"{prefix}attn_q", query_order, bias=config.qkv_bias),
            key=self.linear(f"{prefix}attn_k", key_order, bias=config.qkv_bias),
            value=self.linear(f"{prefix}attn_v", bias=config.qkv_bias),
            query_norm=head_norms[0],
            key_norm=head_norms[1],
            attention_output=self.linear(f"{prefix}attn_output", bias=config.output_bias),
            attention_post_norm=post_norms[0],
            ffn_norm=self.vector(f"{prefix}ffn_norm.weight"),
            gate=self.linear(f"{prefix}ffn_gate"),
            up=self.linear(f"{prefix}ffn_up"),
            down=self.linear(f"{prefix}ffn_down"),
            ffn_post_norm=post_norms[1],
        )

    def _head_order(self) -> npt.NDArray[np.intp]:
        """The permutation of a head's stored rows to half-split order."""
        order = np.arange(self._config.head_dim)
        if self._config.rope_layout == "interleaved":
            rotated = order[: self._config.rope.dim]
            order = np.concatenate([rotated[0::2], rotated[1::2], order[len(rotated) :]])
        return order

    def _row_order(
        self, head_order: npt.NDArray[np.intp], num_heads: int
    ) -> npt.NDArray[np.intp] | None:
        if self._config.rope_layout == "half_split":
            return None
        starts = np.arange(num_heads)[:, None] * self._config.head_dim
        return (starts + head_order).ravel()
