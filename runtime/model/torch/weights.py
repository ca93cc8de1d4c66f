"""A decoder's weights as torch tensors, packed as in the file where a kernel reads that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from ramet.kernels.linear.linear import PackedWeight, WeightFormat, pack_q4, pack_q8
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.files.tensor import GgufTensor
from ramet.runtime.model.rotary import RopeKind, inverse_frequencies


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
class LayerWeights:
    """One decoder layer; norms are vectors of the compute type."""

    attention_norm: torch.Tensor
    qkv: Projection
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    output: Projection
    attention_post_norm: torch.Tensor | None
    ffn_norm: torch.Tensor
    gate_up: Projection
    down: Projection
    ffn_post_norm: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class TorchWeights:
    """Everything that the forward pass reads, on one device.

    ``frequencies`` are the rotary angles a position of each kind of layers, float64 on the CPU;
    ``dtype`` is what activations and dense weights have.
    """

    embedding: PackedWeight
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
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
            for projection in (layer.qkv, layer.output, layer.gate_up, layer.down):
                yield from projection.weights


def load_torch_weights(
    file: ModelFile,
    config: ModelConfig,
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    packed: bool,
) -> TorchWeights:
    """Reads a model file.

    Args:
        packed: keep Q4_0, Q4_1 and Q8_0 tensors packed, exactly as stored; all others, and all
            where this is off, become dense weights of ``dtype``.
    """

    def vector(name: str) -> torch.Tensor:
        return torch.from_numpy(file.tensor(name).to_float32()).to(device, dtype)

    def weight(name: str) -> PackedWeight:
        tensor = file.tensor(name)
        if packed and tensor.type in _REPACK:
            return _REPACK[tensor.type](tensor).to(device)
        dense = torch.from_numpy(tensor.to_float32())
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

    def weight(name: str) -> PackedWeight:
        rows, columns = shapes[name]
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


def _assemble(
    config: ModelConfig,
    vector: Callable[[str], torch.Tensor],
    weight: Callable[[str], PackedWeight],
    frequencies: dict[RopeKind, torch.Tensor],
    dtype: torch.dtype,
) -> TorchWeights:
    """The weights of a model whose tensors two functions give by name."""

    def projection(prefix: str, *names: str, bias: bool = False) -> Projection:
        biases = torch.cat([vector(f"{prefix}{name}.bias") for name in names]) if bias else None
        return Projection.join([weight(f"{prefix}{name}.weight") for name in names], biases)

    def post_norm(name: str) -> torch.Tensor | None:
        return vector(name) if config.post_norms else None

    layers = []
    for index in range(config.num_layers):
        block = f"blk.{index}."
        layers.append(
            LayerWeights(
                attention_norm=vector(block + "attn_norm.weight"),
                qkv=projection(block, "attn_q", "attn_k", "attn_v", bias=config.qkv_bias),
                q_norm=vector(block + "attn_q_norm.weight") if config.qk_norm else None,
                k_norm=vector(block + "attn_k_norm.weight") if config.qk_norm else None,
                output=projection(block, "attn_output", bias=config.output_bias),
                attention_post_norm=post_norm(block + "post_attention_norm.weight"),
                ffn_norm=vector(block + "ffn_norm.weight"),
                gate_up=projection(block, "ffn_gate", "ffn_up"),
                down=projection(block, "ffn_down"),
                ffn_post_norm=post_norm(block + "post_ffw_norm.weight"),
            )
        )
    embedding = weight("token_embd.weight")
    return TorchWeights(
        embedding=embedding,
        layers=tuple(layers),
        final_norm=vector("output_norm.weight") * config.logit_scale,
        head=embedding if config.tied_embeddings else weight("output.weight"),
        frequencies=frequencies,
        dtype=dtype,
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
