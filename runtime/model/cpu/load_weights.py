"""Packs a model file's tensors for the CPU kernels, a few rows at a time."""

from __future__ import annotations

import logging
import math
import time

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu_support.buffers import Arena
from ramet.kernels.linear.cpu_quantise import Quantise
from ramet.kernels.linear.cpu_weights import PackedWeight, pack_rows
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.weights import (
    CpuAttention,
    CpuExperts,
    CpuFeedForward,
    CpuLatentAttention,
    CpuLayer,
    CpuNorm,
    CpuWeights,
    Float32Array,
    LinearWeight,
    check_sizes,
)
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.rotary import inverse_frequencies
from ramet.runtime.model.storage import tensor_quantise

logger = logging.getLogger("ramet.model")
_REPORT_PAUSE_S = 2.0

Order = npt.NDArray[np.intp]


def load_cpu_weights(
    file: ModelFile,
    config: ModelConfig,
    *,
    exact: bool,
    middles: bool,
    quantise: Quantise = "int8",
) -> CpuWeights:
    """Packs a file's tensors, with ``middles`` in place of minimums.

    With ``exact``, tensors stored as floats become float32, otherwise what ``quantise`` says; see
    ``pack_rows``. Raises ``UnsupportedModelError`` for sizes that the kernels don't take.
    """
    check_sizes(file, config)
    loader = _Loader(file, config, quantise, exact, middles)
    layers = []
    reported = time.monotonic()
    for index in range(config.num_layers):
        layers.append(loader.layer(index))
        file.drop_cached()  # or all of the file would be in memory, next to what is made of it
        if time.monotonic() - reported >= _REPORT_PAUSE_S:
            reported = time.monotonic()
            done = 100 * (index + 1) // config.num_layers
            logger.info("loading %s: %d%% of its layers", file.path.name, done)
    embedding = loader.packed("token_embd.weight")
    head = embedding if config.tied_embeddings else loader.packed("output.weight")
    output_norm = loader.norm("output_norm", config.logit_scale)
    assert output_norm is not None
    return CpuWeights(
        embedding=embedding,
        layers=tuple(layers),
        output_norm=output_norm,
        head=LinearWeight(head),
        frequencies={
            kind: inverse_frequencies(config.rope, file, kind) for kind in config.rope_kinds
        },
    )


class _Loader:
    def __init__(
        self,
        file: ModelFile,
        config: ModelConfig,
        quantise: Quantise,
        exact: bool,
        middles: bool,
    ) -> None:
        self._quantise: Quantise = quantise
        self._file = file
        self._config = config
        self._exact = exact
        self._middles = middles
        self._names = config.tensor_shapes()
        self._arena = Arena()  # weights are streamed from memory step by step

    def layer(self, index: int) -> CpuLayer:
        block = f"blk.{index}."
        is_mixture = self._config.has_experts(index)
        return CpuLayer(
            attention_norm=self.norm(block + "attn_norm"),
            attention=self._latent(block) if self._config.latent else self._attention(block),
            attention_post_norm=self.norm(block + "post_attention_norm"),
            ffn_norm=self.norm(block + "ffn_norm"),
            feed_forward=self._experts(block) if is_mixture else self._feed_forward(block),
            ffn_post_norm=self.norm(block + "post_ffw_norm"),
        )

    def norm(self, name: str, scale: float = 1.0) -> CpuNorm | None:
        """A norm; None if the model doesn't have it."""
        weight, bias = (self._vector(f"{name}.{kind}") for kind in ("weight", "bias"))
        if weight is None:
            return None
        factor = np.float32(scale)
        return CpuNorm(weight * factor, None if bias is None else bias * factor)

    def packed(
        self, name: str, order: Order | None = None, *, exact: bool | None = None
    ) -> PackedWeight:
        """A matrix; of one with more dimensions, all rows. ``order``: which rows, and in which
        order."""
        tensor = self._file.tensor(name)
        columns = tensor.shape[-1]
        num_rows = math.prod(tensor.shape[:-1]) if order is None else len(order)
        whole = None if order is None else tensor.data

        def rows(first: int, end: int) -> npt.NDArray[np.uint8]:
            if whole is None or order is None:
                return tensor.rows(first, end)
            return whole[order[first:end]]

        return pack_rows(
            tensor.type,
            rows,
            (num_rows, columns),
            exact=self._exact if exact is None else exact,
            quantise=tensor_quantise(name, self._quantise),
            middles=self._middles,
            allocate=self._arena.empty,
        )

    def _vector(self, name: str) -> Float32Array | None:
        """A tensor's values; None if the model doesn't have it."""
        if name not in self._names:
            return None
        return np.ascontiguousarray(self._file.tensor(name).to_float32().ravel())

    def _linear(
        self, prefix: str, order: Order | None = None, *, exact: bool | None = None
    ) -> LinearWeight:
        weight = self.packed(f"{prefix}.weight", order, exact=exact)
        values = self._vector(f"{prefix}.bias")
        if values is None:
            return LinearWeight(weight)
        padded = np.zeros(16 * weight.num_blocks, np.float32)
        padded[: len(values)] = values if order is None else values[order]
        return LinearWeight(weight, padded)

    def _attention(self, block: str) -> CpuAttention:
        config = self._config
        head = self._rotary_order(config.head_dim, config.rope.dim)
        orders = [self._row_order(head, num) for num in (config.num_heads, config.num_kv_heads)]
        norms = [self._vector(f"{block}attn_{part}_norm.weight") for part in "qk"]
        ordered = [
            None if norm is None else np.ascontiguousarray(norm.reshape(-1, len(head))[:, head])
            for norm in norms
        ]
        return CpuAttention(
            query=self._linear(f"{block}attn_q", orders[0]),
            key=self._linear(f"{block}attn_k", orders[1]),
            value=self._linear(f"{block}attn_v"),
            query_norm=ordered[0],
            key_norm=ordered[1],
            output=self._linear(f"{block}attn_output"),
            sinks=self._vector(f"{block}attn_sinks.weight"),
        )

    def _latent(self, block: str) -> CpuLatentAttention:
        config, latent = self._config, self._config.latent
        assert latent is not None
        rotated = self._rotary_order(latent.rope_dim, latent.rope_dim)
        head = np.concatenate([latent.plain_dim + rotated, np.arange(latent.plain_dim)])
        starts = np.arange(config.num_heads)[:, None]
        short_query, own = None, "attn_q"
        if latent.query_rank:
            short_query, own = self._linear(block + "attn_q_a"), "attn_q_b"
        short_norm = self._vector(block + "attn_kv_a_norm.weight")
        assert short_norm is not None
        made = starts * (latent.plain_dim + latent.value_dim)
        keys = made + np.arange(latent.plain_dim)
        values = made + latent.plain_dim + np.arange(latent.value_dim)
        short_order = np.concatenate([np.arange(latent.rank), latent.rank + rotated])
        return CpuLatentAttention(
            short_query=short_query,
            short_query_norm=self._vector(block + "attn_q_a_norm.weight"),
            query=self._linear(block + own, (starts * latent.head_dim + head).ravel()),
            short=self._linear(block + "attn_kv_a_mqa", short_order),
            short_norm=short_norm,
            key=self._linear(block + "attn_kv_b", keys.ravel()),
            value=self._linear(block + "attn_kv_b", values.ravel()),
            output=self._linear(block + "attn_output"),
        )

    def _feed_forward(self, block: str, kind: str = "") -> CpuFeedForward:
        return CpuFeedForward(
            *(self._linear(f"{block}ffn_{part}{kind}") for part in ("gate", "up", "down"))
        )

    def _experts(self, block: str) -> CpuExperts:
        experts = self._config.experts
        assert experts is not None
        return CpuExperts(
            # Which experts a token gets must not change by rounding.
            router=self._linear(block + "ffn_gate_inp", exact=True),
            selection_bias=self._vector(block + "exp_probs_b.bias"),
            experts=self._feed_forward(block, "_exps"),
            shared=self._feed_forward(block, "_shexp") if experts.shared_size else None,
            shared_gate=self._vector(block + "ffn_gate_inp_shexp.weight"),
        )

    def _rotary_order(self, size: int, rope_dim: int) -> Order:
        """The permutation of a head's stored rows to half-split order."""
        order = np.arange(size)
        if self._config.rope_layout == "interleaved":
            rotated = order[:rope_dim]
            order = np.concatenate([rotated[0::2], rotated[1::2], order[rope_dim:]])
        return order

    def _row_order(self, head_order: Order, num_heads: int) -> Order | None:
        if self._config.rope_layout == "half_split":
            return None
        starts = np.arange(num_heads)[:, None] * self._config.head_dim
        return (starts + head_order).ravel()
