"""A decoder's weights as torch tensors, packed as in the file where a kernel reads that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from ramet.kernels.linear.cpu_quantise import STORED_FLOATS, Quantise
from ramet.kernels.linear.linear import (
    GROUP_SIZE,
    PackedWeight,
    WeightFormat,
    pack_q4,
    pack_q8,
)
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import GgufTensor, part_of
from ramet.runtime.model.rotary import RopeKind, inverse_frequencies
from ramet.runtime.model.storage import tensor_quantise


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear layer, or several over the same input whose outputs are laid side by side."""

    weights: tuple[PackedWeight, ...]
    bias: torch.Tensor | None = None

    @classmethod
    def join(cls, weights: list[PackedWeight], bias: torch.Tensor | None = None) -> Projection:
        """One product where the weights' formats agree, else one a weight."""
        joined = PackedWeight.concatenate(weights)
        return cls((joined,) if joined is not None else tuple(weights), bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm's weight, of the compute type, and its bias or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """Attention over keys and values of each head."""

    qkv: Projection
    q_norm: Norm | None
    k_norm: Norm | None
    output: Projection
    sinks: torch.Tensor | None

    def projections(self) -> Iterator[Projection]:
        yield from (self.qkv, self.output)


@dataclass(frozen=True, slots=True)
class LatentAttentionWeights:
    """Multi-head latent attention; ``short_query`` and its norm make what ``query`` reads, or are
    None. Heads of queries begin with their rotated values."""

    short_query: Projection | None
    short_query_norm: Norm | None
    query: Projection
    short: Projection
    short_norm: Norm
    key_value: Projection
    output: Projection

    def projections(self) -> Iterator[Projection]:
        yield from (self.query, self.short, self.key_value, self.output)
        if self.short_query is not None:
            yield self.short_query


@dataclass(frozen=True, slots=True)
class FeedForward:
    """A gated feed-forward layer."""

    gate_up: Projection
    down: Projection

    def projections(self) -> Iterator[Projection]:
        yield from (self.gate_up, self.down)


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """A mixture of experts; ``shared`` is what every token uses, ``shared_gate`` a vector."""

    router: Projection
    selection_bias: torch.Tensor | None
    experts: tuple[FeedForward, ...]
    num_used: int
    shared: FeedForward | None
    shared_gate: torch.Tensor | None

    def projections(self) -> Iterator[Projection]:
        yield self.router
        for expert in self.experts[: self.num_used]:  # what a token reads
            yield from expert.projections()
        if self.shared is not None:
            yield from self.shared.projections()


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One decoder layer; norms that it doesn't have are None."""

    attention_norm: Norm | None
    attention: AttentionWeights | LatentAttentionWeights
    attention_post_norm: Norm | None
    ffn_norm: Norm | None
    feed_forward: FeedForward | ExpertWeights
    ffn_post_norm: Norm | None


@dataclass(frozen=True, slots=True)
class TorchWeights:
    """Everything that the forward pass reads, on one device.

    ``frequencies`` are the rotary angles a position of each kind of layers, float64 on the CPU;
    ``dtype`` is what activations and dense weights have.
    """

    embedding: PackedWeight
    layers: tuple[LayerWeights, ...]
    final_norm: Norm
    head: PackedWeight
    frequencies: dict[RopeKind, torch.Tensor]
    dtype: torch.dtype

    @property
    def num_bytes(self) -> int:
        """Bytes of the linear layers, each once; what a decode step has to read at least."""
        return sum(weight.num_bytes for weight in self._streamed())

    def _streamed(self) -> Iterator[PackedWeight]:
        yield self.head
        for layer in self.layers:
            for part in (layer.attention, layer.feed_forward):
                for projection in part.projections():
                    yield from projection.weights


def load_torch_weights(
    file: ModelFile,
    config: ModelConfig,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    packed: bool,
    quantise: Quantise = "none",
) -> TorchWeights:
    """Reads a model file.

    Args:
        quantise: what matrices stored as floats become.
        packed: keep Q4_0, Q4_1 and Q8_0 tensors packed, exactly as stored; all others, and all
            where this is off, become dense weights of ``dtype``.
    """

    def vector(name: str) -> torch.Tensor:
        return torch.from_numpy(file.tensor(name).to_float32()).to(device, dtype)

    def weight(name: str, part: int | None = None) -> PackedWeight:
        tensor = file.tensor(name)
        if part is not None:
            tensor = part_of(tensor, part)
        if packed and tensor.type in _REPACK:
            return _REPACK[tensor.type](tensor).to(device)
        dense = torch.from_numpy(tensor.to_float32())
        wanted = tensor_quantise(name, quantise) if tensor.type in STORED_FLOATS else "none"
        if wanted != "none" and dense.shape[-1] % GROUP_SIZE == 0:
            return (pack_q4 if wanted == "int4" else pack_q8)(dense.to(device))
        return PackedWeight("dense", dense.to(device, dtype))

    frequencies = _frequencies(config, file)
    return _assemble(config, vector, weight, frequencies, dtype)


def random_torch_weights(
    config: ModelConfig,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    format: WeightFormat,
    seed: int = 0,
) -> TorchWeights:
    """Weights of the right shapes and of a size that keeps activations near one: for measuring
    and testing models that aren't at hand. The same seed gives the same weights on one device."""
    generator = torch.Generator(device).manual_seed(seed)
    shapes = config.tensor_shapes()

    def vector(name: str) -> torch.Tensor:
        noise = torch.randn(shapes[name], generator=generator, device=device)
        return (noise * 0.1 + (0.0 if name.endswith("bias") else 1.0)).to(dtype)

    def weight(name: str, part: int | None = None) -> PackedWeight:  # noqa: ARG001
        rows, columns = shapes[name][-2:]
        dense = torch.randn(rows, columns, generator=generator, device=device) * columns**-0.5
        if format == "q4":
            return pack_q4(dense)
        return pack_q8(dense) if format == "q8" else PackedWeight("dense", dense.to(dtype))

    return _assemble(config, vector, weight, _frequencies(config, None), dtype)


def _frequencies(config: ModelConfig, file: ModelFile | None) -> dict[RopeKind, torch.Tensor]:
    return {
        kind: torch.from_numpy(inverse_frequencies(config.rope, file, kind))
        for kind in config.rope_kinds
    }


class _GetVector(Protocol):
    def __call__(self, name: str) -> torch.Tensor: ...


class _GetWeight(Protocol):
    def __call__(self, name: str, part: int | None = None) -> PackedWeight: ...


def _assemble(
    config: ModelConfig,
    vector: _GetVector,
    weight: _GetWeight,
    frequencies: dict[RopeKind, torch.Tensor],
    dtype: torch.dtype,
) -> TorchWeights:
    """The weights of a model whose tensors two functions give by name, and by number of expert."""
    assembler = _Assembler(config, vector, weight)
    embedding = weight("token_embd.weight")
    final_norm = assembler.norm("output_norm", config.logit_scale)
    assert final_norm is not None
    return TorchWeights(
        embedding=embedding,
        layers=tuple(assembler.layer(index) for index in range(config.num_layers)),
        final_norm=final_norm,
        head=embedding if config.tied_embeddings else weight("output.weight"),
        frequencies=frequencies,
        dtype=dtype,
    )


class _Assembler:
    def __init__(self, config: ModelConfig, vector: _GetVector, weight: _GetWeight) -> None:
        self._config = config
        self._vector = vector
        self._weight = weight
        self._names = config.tensor_shapes()

    def norm(self, name: str, scale: float = 1.0) -> Norm | None:
        """A norm; None if the model doesn't have it."""
        if f"{name}.weight" not in self._names:
            return None
        bias = self._vector(f"{name}.bias") * scale if f"{name}.bias" in self._names else None
        return Norm(self._vector(f"{name}.weight") * scale, bias)

    def layer(self, index: int) -> LayerWeights:
        block = f"blk.{index}."
        is_mixture = self._config.has_experts(index)
        return LayerWeights(
            attention_norm=self.norm(block + "attn_norm"),
            attention=self._latent(block) if self._config.latent else self._attention(block),
            attention_post_norm=self.norm(block + "post_attention_norm"),
            ffn_norm=self.norm(block + "ffn_norm"),
            feed_forward=self._experts(block) if is_mixture else self._feed_forward(block),
            ffn_post_norm=self.norm(block + "post_ffw_norm"),
        )

    def _projection(self, *names: str, part: int | None = None) -> Projection:
        bias = None
        if f"{names[0]}.bias" in self._names:
            vectors = [self._vector(f"{name}.bias") for name in names]
            bias = torch.cat([each if part is None else each[part] for each in vectors])
        return Projection.join([self._weight(f"{name}.weight", part) for name in names], bias)

    def _attention(self, block: str) -> AttentionWeights:
        name = block + "attn_sinks.weight"
        return AttentionWeights(
            qkv=self._projection(*(f"{block}attn_{part}" for part in "qkv")),
            q_norm=self.norm(block + "attn_q_norm"),
            k_norm=self.norm(block + "attn_k_norm"),
            output=self._projection(block + "attn_output"),
            sinks=self._vector(name).float() if name in self._names else None,
        )

    def _latent(self, block: str) -> LatentAttentionWeights:
        latent = self._config.latent
        assert latent is not None
        short_query, own = None, "attn_q"
        if latent.query_rank:
            short_query, own = self._projection(block + "attn_q_a"), "attn_q_b"
        query = self._weight(f"{block}{own}.weight")
        order = torch.arange(query.num_outputs, device=query.codes.device).view(-1, latent.head_dim)
        order = torch.cat([order[:, latent.plain_dim :], order[:, : latent.plain_dim]], 1)
        short_norm = self.norm(block + "attn_kv_a_norm")
        assert short_norm is not None
        return LatentAttentionWeights(
            short_query=short_query,
            short_query_norm=self.norm(block + "attn_q_a_norm"),
            query=Projection((query.take_rows(order.flatten()),)),
            short=self._projection(block + "attn_kv_a_mqa"),
            short_norm=short_norm,
            key_value=self._projection(block + "attn_kv_b"),
            output=self._projection(block + "attn_output"),
        )

    def _feed_forward(self, block: str, kind: str = "", part: int | None = None) -> FeedForward:
        names = (f"{block}ffn_gate{kind}", f"{block}ffn_up{kind}")
        down = self._projection(f"{block}ffn_down{kind}", part=part)
        return FeedForward(self._projection(*names, part=part), down)

    def _experts(self, block: str) -> ExpertWeights:
        experts = self._config.experts
        assert experts is not None
        gate, bias = block + "ffn_gate_inp_shexp.weight", block + "exp_probs_b.bias"
        return ExpertWeights(
            router=self._projection(block + "ffn_gate_inp"),
            selection_bias=self._vector(bias).float() if bias in self._names else None,
            experts=tuple(self._feed_forward(block, "_exps", part) for part in range(experts.num)),
            num_used=experts.num_used,
            shared=self._feed_forward(block, "_shexp") if experts.shared_size else None,
            shared_gate=self._vector(gate) if gate in self._names else None,
        )


def _blocks(tensor: GgufTensor, num_bytes: int) -> torch.Tensor:
    """The stored blocks of 32 weights: uint8 [rows, blocks, num_bytes]."""
    return torch.from_numpy(np.array(tensor.data)).view(tensor.shape[0], -1, num_bytes)


def _half(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The float16 at byte ``start`` of each block."""
    return blocks[..., start : start + 2].contiguous().view(torch.float16)[..., 0].contiguous()


def _repack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """GGUF's order (byte j of a block has weights j and j + 16) to pairs of neighbours."""
    weights = torch.cat([codes & 15, codes >> 4], dim=-1)  # [rows, blocks, 32]
    return (weights[..., 0::2] | (weights[..., 1::2] << 4)).flatten(1)


def _repack_q4_0(tensor: GgufTensor) -> PackedWeight:
    blocks = _blocks(tensor, 18)
    scales = _half(blocks, 0)
    return PackedWeight("q4", _repack_nibbles(blocks[..., 2:]), scales, scales * -8)


def _repack_q4_1(tensor: GgufTensor) -> PackedWeight:
    blocks = _blocks(tensor, 20)
    return PackedWeight("q4", _repack_nibbles(blocks[..., 4:]), _half(blocks, 0), _half(blocks, 2))


def _repack_q8_0(tensor: GgufTensor) -> PackedWeight:
    blocks = _blocks(tensor, 34)
    codes = blocks[..., 2:].contiguous().view(torch.int8).flatten(1)
    return PackedWeight("q8", codes, _half(blocks, 0))


_REPACK = {"Q4_0": _repack_q4_0, "Q4_1": _repack_q4_1, "Q8_0": _repack_q8_0}
