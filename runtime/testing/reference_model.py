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
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.rotary import RopeKind, inverse_frequencies, magnitude


class ReferenceModel:
    """A model file's weights in float32, and their forward pass over one sequence."""

    def __init__(self, file: ModelFile) -> None:
        self.config = ModelConfig.from_gguf(file)
        self._weights = {
            name: torch.from_numpy(file.tensor(name).to_float32())
            for name in self.config.tensor_shapes()
        }
        self._frequencies = {
            kind: torch.from_numpy(inverse_frequencies(self.config.rope, file, kind))
            for kind in self.config.rope_kinds
        }

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """Logits behind every token, float32[len(token_ids), vocab_size]."""
        hidden = self._states(token_ids)
        head = "token_embd.weight" if self.config.tied_embeddings else "output.weight"
        logits = _capped(F.linear(hidden, self._weights[head]), self.config.logit_cap)
        found: npt.NDArray[np.float32] = logits.numpy()
        return found

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
        turns = {
            kind: self._turns(positions * each, kind) for kind, each in self._frequencies.items()
        }
        x = self._weights["token_embd.weight"][ids] * self.config.embedding_scale
        for layer in range(self.config.num_layers):
            block = f"blk.{layer}."
            normed = self._norm(x, block + "attn_norm")
            added = self._attention(layer, normed, turns[self.config.rope_kind(layer)])
            x = x + self._behind(added, block + "post_attention_norm")
            added = self._feed_forward(layer, self._norm(x, block + "ffn_norm"))
            x = x + self._behind(added, block + "post_ffw_norm")
        return self._norm(x, "output_norm") * self.config.logit_scale

    def _turns(self, angles: torch.Tensor, kind: RopeKind) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of angles."""
        size = magnitude(self.config.rope, kind)
        return (angles.cos() * size).float(), (angles.sin() * size).float()

    def _behind(self, added: torch.Tensor, name: str) -> torch.Tensor:
        return self._norm(added, name) if self.config.post_norms else added

    def _attention(
        self, layer: int, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """``turns``: cosines and sines, [T, rope_dim / 2]."""
        config, name = self.config, f"blk.{layer}.attn_"
        q = self._linear(x, name + "q").view(-1, config.num_heads, config.head_dim)
        k = self._linear(x, name + "k").view(-1, config.num_kv_heads, config.head_dim)
        v = self._linear(x, name + "v").view(-1, config.num_kv_heads, config.head_dim)
        if config.qk_norm:
            eps = config.head_norm_eps
            q, k = self._norm(q, name + "q_norm", eps), self._norm(k, name + "k_norm", eps)
        cos, sin = turns
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        group = config.num_heads // config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * config.attention_scale
        scores = _capped(scores, config.attention_cap)
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        if window := config.window(layer):
            unseen |= torch.ones_like(unseen).tril(-window)
        weights = scores.masked_fill(unseen, -torch.inf).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", weights, v)
        return self._linear(mixed.flatten(1), name + "output")

    def _rotate(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Turns the rotated part of each head, x: [T, heads, head_dim]."""
        rope_dim = self.config.rope.dim
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

    def _norm(self, x: torch.Tensor, name: str, eps: float | None = None) -> torch.Tensor:
        eps = self.config.norm_eps if eps is None else eps
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        return x * scale * self._weights[name + ".weight"]


def _capped(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap) if cap else x
