"""The plain forward pass of the Llama family, in float32 torch: no cache, no batching, no paging.

The oracle that every runner is compared with. It holds all weights dequantised, so it needs four
bytes a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from ramet.runtime.errors import InvalidParameterError
from ramet.runtime.model.config import ModelConfig, inverse_frequencies
from ramet.runtime.model.model_file import ModelFile


class ReferenceModel:
    """A model file's weights in float32, and their forward pass over one sequence."""

    def __init__(self, file: ModelFile) -> None:
        self.config = ModelConfig.from_gguf(file)
        self._weights = {
            name: torch.from_numpy(file.tensor(name).to_float32())
            for name in self.config.tensor_shapes()
        }
        self._frequencies = torch.from_numpy(inverse_frequencies(self.config, file))

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits behind every token, float32[len(token_ids), vocab_size]."""
        hidden = self._states(token_ids)
        head = "token_embd.weight" if self.config.tied_embeddings else "output.weight"
        logits: npt.NDArray[np.float32] = F.linear(hidden, self._weights[head]).numpy()
        return logits

    @torch.inference_mode()
    def hidden_states(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """What the head reads, the final norm's output: float32[len(token_ids), hidden_size]."""
        states: npt.NDArray[np.float32] = self._states(token_ids).numpy()
        return states

    @torch.inference_mode()
    def greedy(
        self, token_ids: Sequence[int], num_tokens: int, *, end_ids: frozenset[int] = frozenset()
    ) -> list[int]:
        """The ``num_tokens`` likeliest next tokens one by one, fewer if one of ``end_ids`` comes;
        that one is included."""
        sequence = list(token_ids)
        while len(sequence) < len(token_ids) + num_tokens:
            sequence.append(int(self.logits(sequence)[-1].argmax()))
            if sequence[-1] in end_ids:
                break
        return sequence[len(token_ids) :]

    def _states(self, token_ids: Sequence[int]) -> torch.Tensor:
        """The last layer's normalised states, [T, hidden_size]."""
        ids = torch.tensor(token_ids, dtype=torch.long)
        if len(ids) == 0 or not 0 <= int(ids.min()) <= int(ids.max()) < self.config.vocab_size:
            raise InvalidParameterError("token_ids must be ids of the vocabulary, at least one")
        angles = torch.arange(len(ids), dtype=torch.float64)[:, None] * self._frequencies
        cos, sin = angles.cos().float(), angles.sin().float()  # [T, rope_dim / 2]
        x = self._weights["token_embd.weight"][ids]
        for layer in range(self.config.num_layers):
            x = x + self._attention(layer, self._norm(x, f"blk.{layer}.attn_norm"), cos, sin)
            x = x + self._feed_forward(layer, self._norm(x, f"blk.{layer}.ffn_norm"))
        return self._norm(x, "output_norm")

    def _attention(
        self, layer: int, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        config, name = self.config, f"blk.{layer}.attn_"
        q = self._linear(x, name + "q").view(-1, config.num_heads, config.head_dim)
        k = self._linear(x, name + "k").view(-1, config.num_kv_heads, config.head_dim)
        v = self._linear(x, name + "v").view(-1, config.num_kv_heads, config.head_dim)
        if config.qk_norm:
            q, k = self._norm(q, name + "q_norm"), self._norm(k, name + "k_norm")
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        group = config.num_heads // config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * config.head_dim**-0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -torch.inf).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v)
        return self._linear(mixed.flatten(1), name + "output")

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Turns the rotated part of each head, x: [T, heads, head_dim]."""
        rope_dim = self.config.rope_dim
        turned, kept = x[..., :rope_dim], x[..., rope_dim:]
        cos, sin = cos[:, None], sin[:, None]
        if self.config.rope_layout == "interleaved":
            a, b = turned[..., 0::2], turned[..., 1::2]
            result = torch.stack([a * cos - b * sin, b * cos + a * sin], -1).flatten(-2)
        else:
            a, b = turned.chunk(2, -1)
            result = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        return torch.cat([result, kept], -1)

    def _feed_forward(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        name = f"blk.{layer}.ffn_"
        gated = F.silu(self._linear(x, name + "gate")) * self._linear(x, name + "up")
        return self._linear(gated, name + "down")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.norm_eps)
        return x * scale * self._weights[name + ".weight"]
