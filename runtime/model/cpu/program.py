"""A decoder's forward pass as stages for the CPU kernels."""

from __future__ import annotations

from collections.abc import Mapping

from ramet.kernels.cpu.program import Program, float_operand
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.features import AttentionPath, DotPath
from ramet.kernels.linear.cpu_weights import PackedWeight
from ramet.kernels.norm import cpu as rows
from ramet.kernels.sampling import cpu_caps as caps
from ramet.kernels.sampling import cpu_largest as largest
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.attention_stages import emit_attention, emit_latent_attention
from ramet.runtime.model.cpu.buffers import Buffers, address, stride
from ramet.runtime.model.cpu.emitter import Emitter, RotaryTable
from ramet.runtime.model.cpu.expert_stages import emit_experts
from ramet.runtime.model.cpu.pages import KvPages
from ramet.runtime.model.cpu.weights import (
    CpuAttention,
    CpuFeedForward,
    CpuLayer,
    CpuWeights,
    LinearWeight,
)
from ramet.runtime.model.rotary import RopeKind


def decoder_program(
    config: ModelConfig,
    weights: CpuWeights,
    pages: KvPages,
    buffers: Buffers,
    rotary: Mapping[RopeKind, RotaryTable],
    *,
    dot_path: DotPath | None,
    attention_path: AttentionPath,
    num_threads: int,
) -> Program:
    """Emits the forward pass.

    ``rotary``: the tables of the kinds of layers. ``dot_path`` None: activations stay float32.
    """
    emitter = Emitter(config, pages, buffers, rotary, dot_path, attention_path, num_threads)
    _embed(emitter, weights.embedding)
    following = [*weights.layers[1:], None]
    for index, (layer, next_layer) in enumerate(zip(weights.layers, following, strict=True)):
        _layer(emitter, index, layer, next_layer)
    _head(emitter, weights)
    return Program(emitter.stages)


def _embed(emitter: Emitter, table: PackedWeight) -> None:
    form = table.form
    emitter.emit(
        emitter.all,
        rows.embed_rows,
        {
            rows.WIDTH: table.num_columns,
            rows.OUT: address(emitter.buffers.hidden),
            rows.OUT_STRIDE: stride(emitter.buffers.hidden),
            rows.TABLE: address(table.data),
            rows.TABLE_BLOCK_BYTES: table.data.shape[1],
            rows.TABLE_BITS: form.bits,
            rows.TABLE_ZERO_POINT: form.zero_point,
            rows.TABLE_LEAST: rows.MINIMUM * form.has_minimum
            + rows.MIDDLE * form.has_middle
            + rows.SECOND_SCALE * form.has_halves
            + rows.BF16 * (form.name == "bf16"),
            rows.TABLE_GROUP_STRIDE: form.stride,
            rows.EMBED_SCALE: float_operand(emitter.config.embedding_scale),
        },
    )


def _layer(emitter: Emitter, index: int, layer: CpuLayer, following: CpuLayer | None) -> None:
    """Of the last layer, rows that nobody reads need no more than keys and values."""
    is_last = following is None
    buffers, rest = emitter.buffers, emitter.read if is_last else emitter.all
    emitter.norm(emitter.all, layer.attention_norm, wait=not is_last)
    if is_last:
        emitter.norm_read(layer.attention_norm)
    attention, feed_forward = layer.attention, layer.feed_forward
    if isinstance(attention, CpuAttention):
        emit_attention(emitter, index, rest, attention)
    else:
        emit_latent_attention(emitter, index, rest, attention)
    emitter.fetch_nothing()
    own = _fetching(layer)
    # Of what a layer with a window reads, the step's list of pages says too much.
    if following is not None and not emitter.config.window(index + 1):
        next_heads = _heads(following)
        if own is not None and next_heads is not None:
            emitter.fetch_for(index + 1, *own, *next_heads)
    output, norm = attention.output, layer.attention_post_norm
    attended = buffers.attended if buffers.latent is None else buffers.latent.packed
    emitter.add(rest, output, attended, buffers.attended_q, norm)
    if not emitter.config.parallel:
        emitter.norm(rest, layer.ffn_norm)
    if isinstance(feed_forward, CpuFeedForward):
        emitter.gated(rest, feed_forward)
        emitter.add(rest, feed_forward.down, buffers.gated, buffers.gated_q, layer.ffn_post_norm)
    else:
        emit_experts(emitter, rest, feed_forward, layer.ffn_post_norm)


def _heads(layer: CpuLayer) -> tuple[LinearWeight, ...] | None:
    """What a layer multiplies before its attention, where that fetches keys and values."""
    attention = layer.attention
    if not isinstance(attention, CpuAttention):
        return None
    return attention.query, attention.key, attention.value


def _fetching(layer: CpuLayer) -> tuple[LinearWeight, ...] | None:
    """What a layer multiplies after its attention, likewise."""
    feed_forward = layer.feed_forward
    if not isinstance(feed_forward, CpuFeedForward):
        return None
    return layer.attention.output, feed_forward.gate, feed_forward.up, feed_forward.down


def _head(emitter: Emitter, weights: CpuWeights) -> None:
    """The final norm, logits, and the likeliest token of greedy rows. Those tokens whose logits
    are wanted are the first read."""
    read, logits, config = emitter.read, emitter.buffers.logits, emitter.config
    emitter.norm(read, weights.output_norm, {rows.ROWS: words.NUM_LOGITS})
    emitter.linear(read, weights.head, read.normed, read.normed_q, logits, count=words.NUM_LOGITS)
    if config.logit_cap:
        operands = {
            caps.X: address(logits),
            caps.X_STRIDE: stride(logits),
            caps.NUM_VECTORS: weights.head.weight.num_blocks,
            caps.CAP: float_operand(config.logit_cap),
        }
        emitter.emit(read, caps.cap_rows, operands)
    operands = {
        largest.X: address(logits),
        largest.X_STRIDE: stride(logits),
        largest.WIDTH: config.vocab_size,
        largest.OUT: address(emitter.buffers.likeliest),
    }
    emitter.emit(read, largest.largest_of_rows, operands)
