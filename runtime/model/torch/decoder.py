"""The forward pass of the Llama family over one step, on any device that torch knows.

The same lines run on a GPU, where each operation is a Triton kernel, and on a CPU, where it is the
kernel's torch reference.
"""

from __future__ import annotations

import torch

from ramet.kernels.activation import gelu_tanh_mul, silu_mul
from ramet.kernels.attention.attention import paged_attention
from ramet.kernels.linear.linear import linear
from ramet.kernels.norm.norm import rms_norm
from ramet.kernels.rotary import rotary_table, rotate_and_write
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.rotary import magnitude
from ramet.runtime.model.torch.step import StepInputs
from ramet.runtime.model.torch.weights import LayerWeights, Projection, TorchWeights


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
        self._gate = silu_mul if config.gate == "silu" else gelu_tanh_mul

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
        x = residual
        for index, layer in enumerate(weights.layers):
            if index == 0:
                x = rms_norm(residual, layer.attention_norm, eps)
            else:
                x = rms_norm(x, layer.attention_norm, eps, residual)
            x = self._attention(index, layer, x, inputs, workspace)
            if layer.attention_post_norm is not None:
                x = rms_norm(x, layer.attention_post_norm, eps)
            x = rms_norm(x, layer.ffn_norm, eps, residual)
            x = self._project(self._gate(self._project(x, layer.gate_up)), layer.down)
            if layer.ffn_post_norm is not None:
                x = rms_norm(x, layer.ffn_post_norm, eps)
        return x, residual

    def final_norm(
        self, x: torch.Tensor, residual: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """What the head reads of ``wanted`` tokens. Nothing mixes tokens after the layers, so only
        those of which more is wanted go on."""
        norm, eps = self.weights.final_norm, self.config.norm_eps
        return rms_norm(x[wanted], norm, eps, residual[wanted])

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
        layer: LayerWeights,
        x: torch.Tensor,
        inputs: StepInputs,
        workspace: tuple[torch.Tensor, torch.Tensor] | None,
    ) -> torch.Tensor:
        config = self.config
        k_pages, v_pages = self.pages[index, 0], self.pages[index, 1]
        qkv = self._project(x, layer.qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            heads = qkv.view(len(qkv), -1, config.head_dim)
            keys = slice(config.num_heads, config.num_heads + config.num_kv_heads)
            heads[:, : config.num_heads] = rms_norm(
                heads[:, : config.num_heads], layer.q_norm, config.head_norm_eps
            )
            heads[:, keys] = rms_norm(heads[:, keys], layer.k_norm, config.head_norm_eps)
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
        mixed = paged_attention(
            q,
            k_pages,
            v_pages,
            inputs.attention,
            scale=config.attention_scale,
            soft_cap=config.attention_cap,
            window=config.window(index),
            workspace=workspace,
        )
        return self._project(mixed.flatten(1), layer.output)

    def _project(self, x: torch.Tensor, projection: Projection) -> torch.Tensor:
        invariant = self._batch_invariant
        if len(projection.weights) == 1:
            return linear(x, projection.weights[0], projection.bias, batch_invariant=invariant)
        parts = [linear(x, weight, batch_invariant=invariant) for weight in projection.weights]
        joined = torch.cat(parts, dim=1)
        return joined if projection.bias is None else joined + projection.bias
