"""The forward pass of the Llama family over one step, on any device that torch knows.

The same lines run on a GPU, where each operation is a Triton kernel, and on a CPU, where it is the
kernel's torch reference.
"""

from __future__ import annotations

import torch

from ramet.kernels.activation import clamped_mul, gelu_tanh_mul, silu_mul
from ramet.kernels.attention.attention import paged_attention
from ramet.kernels.experts.experts import Routing, mix_experts, route
from ramet.kernels.linear.linear import linear
from ramet.kernels.norm.norm import layer_norm, rms_norm
from ramet.kernels.rotary import rotary_table, rotate_and_write
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.experts import Experts
from ramet.runtime.model.rotary import magnitude
from ramet.runtime.model.torch.step import StepInputs
from ramet.runtime.model.torch.weights import (
    AttentionWeights,
    ExpertWeights,
    FeedForward,
    LatentAttentionWeights,
    Norm,
    Projection,
    TorchWeights,
)

_GATES = {"silu": silu_mul, "gelu_tanh": gelu_tanh_mul, "clamped": clamped_mul}


class TorchDecoder:
    """A model's layers, and the pages that they write and read.

    Args:
        pages: [num_layers, 2, num_pages, num_kv_heads, page_size, head_dim], keys then values.
        max_position: rotary angles are tabulated below it.
        batch_invariant: no row's products depend on how many rows share them.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: TorchWeights,
        pages: torch.Tensor,
        *,
        max_position: int,
        batch_invariant: bool,
    ) -> None:
        self.config = config
        self.weights = weights
        self.pages = pages
        self._batch_invariant = batch_invariant
        self._cos_sin = {
            kind: rotary_table(
                frequencies, max_position, magnitude=magnitude(config.rope, kind)
            ).to(pages.device)
            for kind, frequencies in weights.frequencies.items()
        }
        self._gate = _GATES[config.gate]
        experts = config.experts
        self._routing = None if experts is None else _routing(experts)

    def forward(
        self, inputs: StepInputs, workspace: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> torch.Tensor:
        """Writes the step's keys and values, returns logits, float32 [L, vocab_size].

        ``workspace`` is ``paged_attention``'s, if it is to be kept between calls.
        """
        x, residual = self.layers(inputs, workspace)
        return self.head(self.final_norm(x, residual, inputs.logit_tokens))

    def layers(
        self, inputs: StepInputs, workspace: tuple[torch.Tensor, torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes the step's keys and values, returns what the last layer adds to the residual
        stream, and the stream without it, each [T, hidden_size]."""
        weights, eps = self.weights, self.config.norm_eps
        residual = weights.embedding.rows(inputs.token_ids, weights.dtype)
        if self.config.embedding_scale != 1:
            residual = residual * self.config.embedding_scale
        x: torch.Tensor | None = None
        for index, layer in enumerate(weights.layers):
            normed = self._add_and_norm(x, layer.attention_norm, residual)
            if isinstance(layer.attention, LatentAttentionWeights):
                x = self._latent(index, layer.attention, normed, inputs, workspace)
            else:
                x = self._attention(index, layer.attention, normed, inputs, workspace)
            if layer.attention_post_norm is not None:
                x = self._norm(x, layer.attention_post_norm, eps)
            if self.config.parallel:
                x = x + self._feed_forward(normed, layer.feed_forward)
                continue
            normed = self._add_and_norm(x, layer.ffn_norm, residual)
            x = self._feed_forward(normed, layer.feed_forward)
            if layer.ffn_post_norm is not None:
                x = self._norm(x, layer.ffn_post_norm, eps)
        assert x is not None
        return x, residual

    def final_norm(
        self, x: torch.Tensor, residual: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """What the head reads of ``wanted`` tokens. Nothing mixes tokens after the layers, so only
        those of which more is wanted go on."""
        return self._add_and_norm(x[wanted], self.weights.final_norm, residual[wanted])

    def _norm(self, x: torch.Tensor, norm: Norm, eps: float) -> torch.Tensor:
        if self.config.norm == "rms":
            return rms_norm(x, norm.weight, eps)
        return layer_norm(x, norm.weight, norm.bias, eps)

    def _add_and_norm(
        self, x: torch.Tensor | None, norm: Norm | None, residual: torch.Tensor
    ) -> torch.Tensor:
        """Adds ``x`` to the residual stream, in place, and normalises that, if the model does."""
        if x is not None and norm is not None and self.config.norm == "rms":
            return rms_norm(x, norm.weight, self.config.norm_eps, residual)
        if x is not None:
            residual += x
        return residual if norm is None else self._norm(residual, norm, self.config.norm_eps)

    def _feed_forward(self, x: torch.Tensor, weights: FeedForward | ExpertWeights) -> torch.Tensor:
        if isinstance(weights, FeedForward):
            return self._project(self._gate(self._project(x, weights.gate_up)), weights.down)
        experts = weights.experts
        assert self._routing is not None
        chosen, shares = route(
            self._project(x, weights.router), weights.selection_bias, self._routing
        )
        mixed = mix_experts(
            x, chosen, shares, lambda index, rows: self._feed_forward(rows, experts[index])
        )
        if weights.shared is not None:
            shared = self._feed_forward(x, weights.shared).float()
            if weights.shared_gate is not None:
                shared *= torch.sigmoid(x.float() @ weights.shared_gate.float())[:, None]
            mixed += shared
        return mixed.to(x.dtype)

    def head(self, normed: torch.Tensor) -> torch.Tensor:
        """Logits, float32 [L, vocab_size], of the final norm's output."""
        logits = linear(
            normed,
            self.weights.head,
            out_dtype=torch.float32,
            batch_invariant=self._batch_invariant,
        )
        cap = self.config.logit_cap
        return cap * torch.tanh(logits / cap) if cap else logits

    def _attention(
        self,
        index: int,
        weights: AttentionWeights,
        x: torch.Tensor,
        inputs: StepInputs,
        workspace: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> torch.Tensor:
        qkv = self._project(x, weights.qkv)
        if weights.q_norm is not None and weights.k_norm is not None:
            q_size = self.config.num_heads * self.config.head_dim
            k_end = q_size + self.config.num_kv_heads * self.config.head_dim
            self._norm_heads(qkv[:, :q_size], weights.q_norm)
            self._norm_heads(qkv[:, q_size:k_end], weights.k_norm)
        mixed = self._attend(index, qkv, inputs, workspace, weights.sinks)
        return self._project(mixed.flatten(1), weights.output)

    def _norm_heads(self, rows: torch.Tensor, norm: Norm) -> None:
        """Normalises rows of queries or keys in place."""
        if self.config.qk_norm != "all_heads":
            rows = rows.view(len(rows), -1, self.config.head_dim)
        rows.copy_(self._norm(rows, norm, self.config.head_norm_eps))

    def _latent(
        self,
        index: int,
        weights: LatentAttentionWeights,
        x: torch.Tensor,
        inputs: StepInputs,
        workspace: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> torch.Tensor:
        """Heads are laid out with their rotated values first, and values end with zeros."""
        config, latent, eps = self.config, self.config.latent, self.config.norm_eps
        assert latent is not None
        source = x
        if weights.short_query is not None and weights.short_query_norm is not None:
            source = self._norm(
                self._project(x, weights.short_query), weights.short_query_norm, eps
            )
        q = self._project(source, weights.query)
        both = self._project(x, weights.short)
        short, shared = both[:, : latent.rank], both[:, latent.rank :]
        short = self._norm(short.contiguous(), weights.short_norm, eps)
        made = self._project(short, weights.key_value).view(len(x), config.num_heads, -1)
        plain, values = made[..., : latent.plain_dim], made[..., latent.plain_dim :]
        keys = torch.cat([shared[:, None].expand(-1, config.num_heads, -1), plain], 2)
        values = torch.nn.functional.pad(values, (0, config.head_dim - latent.value_dim))
        qkv = torch.cat([q, keys.flatten(1), values.flatten(1)], 1)
        mixed = self._attend(index, qkv, inputs, workspace, None)
        return self._project(mixed[..., : latent.value_dim].flatten(1), weights.output)

    def _attend(
        self,
        index: int,
        qkv: torch.Tensor,
        inputs: StepInputs,
        workspace: tuple[torch.Tensor, torch.Tensor] | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Rotates, writes keys and values, attends: [T, heads, head_dim]."""
        config = self.config
        k_pages, v_pages = self.pages[index, 0], self.pages[index, 1]
        q = rotate_and_write(
            qkv,
            self._cos_sin[config.rope_kind(index)],
            inputs.attention.positions,
            inputs.slots,
            k_pages,
            v_pages,
            num_heads=config.num_heads,
            interleaved=config.rope_layout == "interleaved",
        )
        return paged_attention(
            q,
            k_pages,
            v_pages,
            inputs.attention,
            scale=config.attention_scale,
            soft_cap=config.attention_cap,
            window=config.window(index),
            sinks=sinks,
            workspace=workspace,
        )

    def _project(self, x: torch.Tensor, projection: Projection) -> torch.Tensor:
        invariant = self._batch_invariant
        if len(projection.weights) == 1:
            return linear(x, projection.weights[0], projection.bias, batch_invariant=invariant)
        parts = [linear(x, weight, batch_invariant=invariant) for weight in projection.weights]
        joined = torch.cat(parts, dim=1)
        return joined if projection.bias is None else joined + projection.bias


def _routing(experts: Experts) -> Routing:
    return Routing(
        num_used=experts.num_used,
        sigmoid=experts.score == "sigmoid",
        normalised=experts.normalised,
        scale=experts.scale,
        num_groups=experts.num_groups,
        num_groups_used=experts.num_groups_used,
        group_top=experts.group_top,
    )
