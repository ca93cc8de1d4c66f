"""The plain forward pass of every architecture, in float32 torch: no cache, batching or paging.

The oracle that every runner is compared with. It holds all weights dequantised, so it needs four
bytes a parameter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.model.config import ModelConfig, inverse_frequencies
from ramet.runtime.model.files.model_file import ModelFile


class ReferenceModel:
    """A model file's weights in float32, and their forward pass over one sequence."""

    def __init__(self, file: ModelFile) -> None:
        self.config = ModelConfig.from_gguf(file)
        self._weights = {
            name: torch.from_numpy(file.tensor(name).to_float32())
            for name in self.config.tensor_shapes()
        }
        self._frequencies = {
            local: torch.from_numpy(inverse_frequencies(self.config, file, local=local))
            for local in {window > 0 for window in self.config.windows or (0,)}
        }

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
        positions = torch.arange(len(ids), dtype=torch.float64)[:, None]
        angles = {local: positions * each for local, each in self._frequencies.items()}
        x = self._weights["token_embd.weight"][ids] * self.config.embedding_scale
        for layer in range(self.config.num_layers):
            block = f"blk.{layer}."
            turns = angles[self.config.window(layer) > 0]
            added = self._attention(layer, self._norm(x, block + "attn_norm"), turns)
            x = x + self._behind(added, block + "post_attention_norm")
            added = self._feed_forward(layer, self._norm(x, block + "ffn_norm"))
            x = x + self._behind(added, block + "post_ffw_norm")
        return self._norm(x, "output_norm")

    def _behind(self, added: torch.Tensor, name: str) -> torch.Tensor:
        return self._norm(added, name) if self.config.post_norms else added

    def _attention(self, layer: int, x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        """``angles``: [T, rope_dim / 2]."""
        config, name = self.config, f"blk.{layer}.attn_"
        q = self._linear(x, name + "q").view(-1, config.num_heads, config.head_dim)
        k = self._linear(x, name + "k").view(-1, config.num_kv_heads, config.head_dim)
        v = self._linear(x, name + "v").view(-1, config.num_kv_heads, config.head_dim)
        if config.qk_norm:
            q, k = self._norm(q, name + "q_norm"), self._norm(k, name + "k_norm")
        cos, sin = angles.cos().float(), angles.sin().float()
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        group = config.num_heads // config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * config.attention_scale
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        if window := config.window(layer):
            unseen |= torch.ones_like(unseen).tril(-window)
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
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
        gate = self._linear(x, name + "gate")
        gate = F.silu(gate) if self.config.gate == "silu" else F.gelu(gate, approximate="tanh")
        return self._linear(gate * self._linear(x, name + "up"), name + "down")

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config.norm_eps)
        return x * scale * self._weights[name + ".weight"]
