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
    """A model file's weights in float32, and their forward pass over one sequence.

    Args:
        kv_dtype: what keys and values are rounded to, as the compiled runner stores them: ``bf16``,
            or ``int8`` with a scale a head and token; None: nothing.
    """

    def __init__(self, file: ModelFile, *, kv_dtype: str | None = None) -> None:
        self._kv_dtype = kv_dtype
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
        config = self.config
        for layer in range(config.num_layers):
            block = f"blk.{layer}."
            normed = self._norm(x, block + "attn_norm") if config.pre_norms else x
            attend = self._latent_attention if config.latent else self._attention
            added = attend(layer, normed, turns[config.rope_kind(layer)])
            x = x + self._behind(added, block + "post_attention_norm")
            if config.pre_norms and not config.parallel:
                normed = self._norm(x, block + "ffn_norm")
            elif not config.parallel:
                normed = x
            feed = self._experts if config.has_experts(layer) else self._feed_forward
            x = x + self._behind(feed(layer, normed), block + "post_ffw_norm")
        return self._norm(x, "output_norm") * config.logit_scale

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
        if config.qk_norm != "none":
            eps, shapes = config.head_norm_eps, (q.shape, k.shape)
            if config.qk_norm == "all_heads":
                q, k = q.flatten(1), k.flatten(1)
            q, k = self._norm(q, name + "q_norm", eps), self._norm(k, name + "k_norm", eps)
            q, k = q.view(shapes[0]), k.view(shapes[1])
        cos, sin = turns
        q, k = self._rotate(q, cos, sin), self._rotate(k, cos, sin)
        return self._mixed(layer, q, k, v)

    def _latent_attention(
        self, layer: int, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """As ``_attention``, with keys and values made of a short vector."""
        config, name = self.config, f"blk.{layer}.attn_"
        latent = config.latent
        assert latent is not None
        if latent.query_rank:
            q = self._linear(
                self._norm(self._linear(x, name + "q_a"), name + "q_a_norm"), name + "q_b"
            )
        else:
            q = self._linear(x, name + "q")
        both = self._linear(x, name + "kv_a_mqa")
        short, shared = both[:, : latent.rank], both[:, latent.rank :]
        made = self._linear(self._norm(short, name + "kv_a_norm"), name + "kv_b")
        made = made.view(len(x), config.num_heads, -1)
        k, v = made[..., : latent.plain_dim], made[..., latent.plain_dim :]
        q = q.view(len(x), config.num_heads, -1)
        q_plain, q_turned = q[..., : latent.plain_dim], q[..., latent.plain_dim :]
        cos, sin = turns
        q_turned = self._rotate(q_turned, cos, sin)
        shared = self._rotate(shared[:, None], cos, sin).expand(-1, config.num_heads, -1)
        return self._mixed(layer, torch.cat([q_plain, q_turned], -1), torch.cat([k, shared], -1), v)

    def _mixed(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Attention's result of queries, keys and values [T, heads, head_dim]."""
        config = self.config
        if self._kv_dtype is not None:
            k, v = (_rounded(x, self._kv_dtype) for x in (k, v))
        group = config.num_heads // config.num_kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) * config.attention_scale
        scores = _capped(scores, config.attention_cap)
        unseen = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        if window := config.window(layer):
            unseen |= torch.ones_like(unseen).tril(-window)
        scores = scores.masked_fill(unseen, -torch.inf)
        if config.sinks:
            sinks = self._weights[f"blk.{layer}.attn_sinks.weight"][:, None, None]
            scores = torch.cat([scores, sinks.expand(-1, len(q), 1)], -1)
        weights = scores.softmax(-1)[..., : len(k)]
        mixed = torch.einsum("hqk,khd->qhd", weights, v)
        return self._linear(mixed.flatten(1), f"blk.{layer}.attn_output")

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
        gated = self._gated(self._linear(x, name + "gate"), self._linear(x, name + "up"))
        return self._linear(gated, name + "down")

    def _gated(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        if self.config.gate == "clamped":
            gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
            return gate * torch.sigmoid(1.702 * gate) * (up + 1.0)
        gate = F.silu(gate) if self.config.gate == "silu" else F.gelu(gate, approximate="tanh")
        return gate * up

    def _experts(self, layer: int, x: torch.Tensor) -> torch.Tensor:
        """One token and one of its experts after the other."""
        experts, name = self.config.experts, f"blk.{layer}.ffn_"
        assert experts is not None
        logits = self._linear(x, name + "gate_inp")
        scores = logits.softmax(-1) if experts.score == "softmax" else logits.sigmoid()
        bias = self._weights.get(f"blk.{layer}.exp_probs_b.bias")
        ranked = scores if bias is None else scores + bias
        groups = ranked.view(len(x), experts.num_groups, -1)
        if experts.num_groups > 1:
            best = groups.topk(experts.group_top, -1)[0].sum(-1)
            used = best.topk(experts.num_groups_used, -1)[1]
            hidden = torch.ones_like(best, dtype=torch.bool).scatter(1, used, False)
            ranked = groups.masked_fill(hidden[..., None], -torch.inf).flatten(1)
        chosen = ranked.topk(experts.num_used, -1)[1]
        weights = scores.gather(1, chosen)
        if experts.normalised:
            weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(x)
        for token, indices in enumerate(chosen.tolist()):
            for place, index in enumerate(indices):
                row = self._gated(
                    self._expert(x[token], name + "gate_exps", index),
                    self._expert(x[token], name + "up_exps", index),
                )
                row = self._expert(row, name + "down_exps", index)
                result[token] += weights[token, place] * experts.scale * row
        if experts.shared_size:
            shared = self._gated(
                self._linear(x, name + "gate_shexp"), self._linear(x, name + "up_shexp")
            )
            shared = self._linear(shared, name + "down_shexp")
            if experts.shared_gate:
                gate = x @ self._weights[name + "gate_inp_shexp.weight"]
                shared = shared * torch.sigmoid(gate)[:, None]
            result += shared
        return result

    def _expert(self, x: torch.Tensor, name: str, index: int) -> torch.Tensor:
        bias = self._weights.get(name + ".bias")
        weight = self._weights[name + ".weight"][index]
        return F.linear(x, weight, None if bias is None else bias[index])

    def _linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self._weights[name + ".weight"], self._weights.get(name + ".bias"))

    def _norm(self, x: torch.Tensor, name: str, eps: float | None = None) -> torch.Tensor:
        eps = self.config.norm_eps if eps is None else eps
        if self.config.norm == "layer":
            x = x - x.mean(-1, keepdim=True)
        scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
        normed = x * scale * self._weights[name + ".weight"]
        bias = self._weights.get(name + ".bias")
        return normed if bias is None else normed + bias


def _capped(x: torch.Tensor, cap: float) -> torch.Tensor:
    return cap * torch.tanh(x / cap) if cap else x


def _rounded(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """Keys or values [tokens, heads, head_dim] as they are stored."""
    if dtype == "bf16":
        return x.bfloat16().float()
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-20) / 127
    return (x / scale).round() * scale
