"""Stages of attention: projections to heads, and attention over pages."""

from __future__ import annotations

from ramet.kernels.cpu.program import float_operand
from ramet.kernels.cpu_support import step as words
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear import cpu_fused as linear_fused
from ramet.kernels.linear import cpu_heads as placed
from ramet.kernels.linear import cpu_kv as stored_heads
from ramet.kernels.norm import cpu as rows
from ramet.runtime.model.cpu.buffers import Activations, AnyArray, address, stride
from ramet.runtime.model.cpu.emitter import Emitter, Tokens
from ramet.runtime.model.cpu.weights import CpuAttention, CpuLatentAttention, LinearWeight


def emit_attention(emitter: Emitter, index: int, rest: Tokens, layer: CpuAttention) -> None:
    """Attention of a layer; of tokens that nobody reads, who aren't in ``rest``, only keys and
    values."""
    queries, keys, values = linear_fused.QUERIES, linear_fused.KEYS, linear_fused.VALUES
    if emitter.config.qk_norm == "all_heads":
        _norm_and_place(emitter, queries, rest, index, layer.query, layer.query_norm)
        _norm_and_place(emitter, keys, emitter.all, index, layer.key, layer.key_norm)
    else:
        _project(emitter, queries, rest, index, layer.query, layer.query_norm)
        _project(emitter, keys, emitter.all, index, layer.key, layer.key_norm)
    _project(emitter, values, emitter.all, index, layer.value, None)
    emitter.attend(rest, index, sinks=layer.sinks)


def emit_latent_attention(
    emitter: Emitter, index: int, rest: Tokens, layer: CpuLatentAttention
) -> None:
    """As ``emit_attention``, for multi-head latent attention."""
    config, buffers, latent = emitter.config, emitter.buffers, emitter.config.latent
    assert latent is not None
    assert buffers.latent is not None
    room = buffers.latent
    queries, keys, values = linear_fused.QUERIES, linear_fused.KEYS, linear_fused.VALUES
    if layer.short_query is not None and layer.short_query_norm is not None:
        source = room.short_query, room.short_query_q
        emitter.linear(rest, layer.short_query, rest.normed, rest.normed_q, room.short_query)
        _norm_rows(
            emitter, rest, room.short_query, latent.query_rank, layer.short_query_norm, source[1]
        )
        _project(emitter, queries, rest, index, layer.query, None, source)
    else:
        _project(emitter, queries, rest, index, layer.query, None)
    tokens = emitter.all
    emitter.linear(tokens, layer.short, tokens.normed, tokens.normed_q, room.short)
    _norm_rows(emitter, tokens, room.short, latent.rank, layer.short_norm, room.short_q)
    for kind, part, own, shared in (
        (keys, layer.key, latent.plain_dim, latent.rope_dim),
        (values, layer.value, latent.value_dim, 0),
    ):
        emitter.linear(tokens, part, room.short, room.short_q, room.heads)
        operands = _placing(room.heads, own, config.num_heads) | {
            placed.SHARED: address(room.short) + 4 * latent.rank,
            placed.SHARED_STRIDE: stride(room.short),
            placed.SHARED_DIM: shared,
        }
        emitter.emit(tokens, placed.place_heads, operands | _finishing(emitter, kind, index, None))
    emitter.attend(rest, index, raw=True)
    operands = _placing(buffers.attended, latent.value_dim, config.num_heads) | {
        placed.OWN_STRIDE: 4 * config.head_dim,
        placed.OUT: address(room.packed),
        placed.OUT_STRIDE: stride(room.packed),
    }
    if emitter.dot_path is not None:
        operands |= buffers.attended_q.as_output()
    emitter.emit(rest, placed.pack_heads, operands)


def _project(
    emitter: Emitter,
    kind: int,
    tokens: Tokens,
    index: int,
    layer: LinearWeight,
    norm: AnyArray | None,
    source: tuple[AnyArray, Activations] | None = None,
) -> None:
    """A projection to heads; of the normed rows unless there is another ``source``."""
    x, quantised = source or (tokens.normed, tokens.normed_q)
    path, operands = emitter.product(layer, x, quantised, words.NUM_TOKENS)
    operands |= emitter.share(layer) | _finishing(emitter, kind, index, norm)
    # The three kinds write apart from each other, so only the last one waits.
    operation = linear_fused.heads_op(layer.weight.form.name, path)
    emitter.emit(tokens, operation, operands, wait=kind == linear_fused.VALUES)


def _norm_and_place(
    emitter: Emitter,
    kind: int,
    tokens: Tokens,
    index: int,
    layer: LinearWeight,
    norm: AnyArray | None,
) -> None:
    """A projection to heads that are normalised together."""
    assert emitter.buffers.projected is not None
    assert norm is not None
    num_heads = emitter.config.num_heads
    if kind == linear_fused.KEYS:
        num_heads = emitter.config.num_kv_heads
    room, size = emitter.buffers.projected, num_heads * emitter.config.head_dim
    emitter.linear(tokens, layer, tokens.normed, tokens.normed_q, room)
    _norm_rows(emitter, tokens, room, size, norm, None, emitter.config.head_norm_eps)
    operands = _placing(room, emitter.config.head_dim, num_heads)
    operands |= _finishing(emitter, kind, index, None)
    emitter.emit(tokens, placed.place_heads, operands)


def _norm_rows(
    emitter: Emitter,
    tokens: Tokens,
    x: AnyArray,
    width: int,
    norm: AnyArray,
    quantised: Activations | None,
    epsilon: float | None = None,
) -> None:
    """Norms the first ``width`` values of rows, in place."""
    operands = {
        rows.X: address(x),
        rows.X_STRIDE: stride(x),
        rows.OUT: address(x),
        rows.OUT_STRIDE: stride(x),
        rows.WIDTH: width,
        rows.ROWS: words.NUM_TOKENS,
        rows.WEIGHT: address(norm),
        rows.CENTRED: emitter.config.norm == "layer",
        rows.EPSILON: float_operand(emitter.config.norm_eps if epsilon is None else epsilon),
    }
    if quantised is not None and emitter.dot_path is not None:
        operands |= quantised.as_output()
    emitter.emit(tokens, rows.norm_rows, operands)


def _placing(x: AnyArray, own_dim: int, num_heads: int) -> dict[int, int]:
    """Operands that say where heads are."""
    return {
        placed.X: address(x),
        placed.X_STRIDE: stride(x),
        placed.OWN_DIM: own_dim,
        placed.OWN_STRIDE: 4 * own_dim,
        placed.NUM_HEADS: num_heads,
        linear.ROWS: words.NUM_TOKENS,
    }


def _finishing(emitter: Emitter, kind: int, index: int, norm: AnyArray | None) -> dict[int, int]:
    """Operands of what is done with a head."""
    config, buffers = emitter.config, emitter.buffers
    cosines, sines = emitter.rotary[config.rope_kind(index)]
    operands = {
        linear_fused.HEAD_KIND: kind,
        stored_heads.HEAD_DIM: config.head_dim,
        linear_fused.HEAD_OUT: address(buffers.queries),
        linear_fused.HEAD_OUT_STRIDE: stride(buffers.queries),
        linear_fused.ROPE_DIM: config.rope.dim,
        linear_fused.COSINES: address(cosines),
        linear_fused.SINES: address(sines),
        linear_fused.QUERY_SCALE: float_operand(config.attention_scale),
        linear_fused.HEAD_NORM: 0 if norm is None else address(norm),
        linear_fused.HEAD_NORM_STRIDE: 4 * config.head_dim * (config.qk_norm == "each_head"),
        linear_fused.HEAD_CENTRED: config.norm == "layer",
        linear_fused.HEAD_EPSILON: float_operand(config.head_norm_eps),
    }
    if kind == linear_fused.QUERIES:
        return operands
    stored = emitter.pages.keys if kind == linear_fused.KEYS else emitter.pages.values
    pages = stored[:, index]
    return operands | {
        stored_heads.PAGES: address(pages),
        stored_heads.PAGE_SIZE: emitter.pages.page_size,
        stored_heads.HEAD_BYTES: pages.strides[1],
        stored_heads.PAGE_BYTES: pages.strides[0],
        stored_heads.KV_INT8: emitter.pages.dtype == "int8",
    }
