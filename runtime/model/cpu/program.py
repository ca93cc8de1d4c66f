"""A decoder's forward pass as stages for the CPU kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.kernels.attention import cpu as attention
from ramet.kernels.cpu.program import Program, Stage, float_operand
from ramet.kernels.cpu_support import fetch
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.features import AttentionPath, DotPath
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear import cpu_fused as linear_fused
from ramet.kernels.linear.cpu_weights import GROUP, PackedWeight
from ramet.kernels.norm import cpu as rows
from ramet.kernels.sampling import cpu_largest as largest
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.buffers import Activations, AnyArray, Buffers, address, stride
from ramet.runtime.model.cpu.pages import KvPages
from ramet.runtime.model.cpu.weights import CpuLayer, CpuWeights, LinearWeight
from ramet.runtime.model.rotary import RopeKind

RotaryTable = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Cosines and sines, float32[positions, rope_dim / 2]."""
_TASKS_A_THREAD = 8


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The tokens of one of a step's records, and their rows."""

    record: int
    hidden: AnyArray
    normed: AnyArray | None
    normed_q: Activations


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
    emitter = _Emitter(config, pages, buffers, rotary, dot_path, attention_path, num_threads)
    emitter.embed(weights.embedding)
    following = [*weights.layers[1:], None]
    for index, (layer, next_layer) in enumerate(zip(weights.layers, following, strict=True)):
        emitter.layer(index, layer, next_layer)
    emitter.head(weights)
    return Program(emitter.stages)


class _Emitter:
    def __init__(
        self,
        config: ModelConfig,
        pages: KvPages,
        buffers: Buffers,
        rotary: Mapping[RopeKind, RotaryTable],
        dot_path: DotPath | None,
        attention_path: AttentionPath,
        num_threads: int,
    ) -> None:
        self.stages: list[Stage] = []
        self._all = _Tokens(words.ALL, buffers.hidden, buffers.normed, buffers.normed_q)
        self._read = _Tokens(words.READ, buffers.read_hidden, buffers.read_normed, buffers.read_q)
        self._config = config
        self._pages = pages
        self._buffers = buffers
        self._rotary = rotary
        self._dot_path = dot_path
        self._attention_path: AttentionPath = attention_path
        self._num_threads = num_threads
        self._fetched: AnyArray | None = None

    def embed(self, table: PackedWeight) -> None:
        form = table.form
        self._emit(
            self._all,
            rows.embed_rows,
            {
                rows.WIDTH: table.num_columns,
                rows.OUT: address(self._buffers.hidden),
                rows.OUT_STRIDE: stride(self._buffers.hidden),
                rows.TABLE: address(table.data),
                rows.TABLE_BLOCK_BYTES: table.data.shape[1],
                rows.TABLE_BITS: form.bits,
                rows.TABLE_ZERO_POINT: form.zero_point,
                rows.TABLE_LEAST: rows.MINIMUM * form.has_minimum
                + rows.MIDDLE * form.has_middle
                + rows.SECOND_SCALE * form.has_halves,
                rows.TABLE_GROUP_STRIDE: form.stride,
                rows.EMBED_SCALE: float_operand(self._config.embedding_scale),
            },
        )

    def layer(self, index: int, layer: CpuLayer, following: CpuLayer | None) -> None:
        """Of the last layer, rows that are not read need no more than keys and values."""
        is_last = following is None
        buffers, rest = self._buffers, self._read if is_last else self._all
        self._norm(self._all, layer.attention_norm, wait=not is_last)
        if is_last:
            self._norm_read(layer.attention_norm)
        keys, values = self._pages.keys[:, index], self._pages.values[:, index]
        window = self._config.window(index)
        angles = self._rotary[self._config.rope_kind(index)]
        self._heads(linear_fused.QUERIES, rest, layer.query, angles, layer.query_norm)
        self._heads(linear_fused.KEYS, self._all, layer.key, angles, layer.key_norm, keys)
        self._heads(linear_fused.VALUES, self._all, layer.value, angles, None, values)
        self._attend(rest, keys, values, window)
        self._fetched = None
        # Of what a layer with a window reads, the step's list of pages says too much.
        if following is not None and not self._config.window(index + 1):
            own = (layer.attention_output, layer.gate, layer.up, layer.down)
            self._fetch_for(index + 1, *own, *_heads(following))
        output, norm = layer.attention_output, layer.attention_post_norm
        self._add(rest, output, buffers.attended, buffers.attended_q, norm)
        self._norm(rest, layer.ffn_norm)
        self._gated(rest, layer)
        self._add(rest, layer.down, buffers.gated, buffers.gated_q, layer.ffn_post_norm)

    def head(self, weights: CpuWeights) -> None:
        """The final norm, logits, and the likeliest token of greedy rows. Those tokens whose logits
        are wanted are the first read."""
        read, logits = self._read, self._buffers.logits
        self._norm(read, weights.output_norm, {rows.ROWS: words.NUM_LOGITS})
        self._linear(read, weights.head, read.normed, read.normed_q, logits, count=words.NUM_LOGITS)
        operands = {
            largest.X: address(logits),
            largest.X_STRIDE: stride(logits),
            largest.WIDTH: self._config.vocab_size,
            largest.OUT: address(self._buffers.likeliest),
        }
        self._emit(read, largest.largest_of_rows, operands)

    def _emit(
        self, tokens: _Tokens, operation: Op, operands: dict[int, int], *, wait: bool = True
    ) -> None:
        self.stages.append(Stage(operation, operands, wait, tokens.record))

    def _norm(
        self,
        tokens: _Tokens,
        weight: AnyArray,
        operands: dict[int, int] | None = None,
        *,
        wait: bool = True,
    ) -> None:
        common = {
            rows.X: address(tokens.hidden),
            rows.X_STRIDE: stride(tokens.hidden),
            rows.WIDTH: self._config.hidden_size,
            rows.ROWS: words.NUM_TOKENS,
            rows.WEIGHT: address(weight),
            rows.EPSILON: float_operand(self._config.norm_eps),
        }
        if tokens.normed is not None:
            common |= {rows.OUT: address(tokens.normed), rows.OUT_STRIDE: stride(tokens.normed)}
        else:
            common |= tokens.normed_q.as_output()
        self._emit(tokens, rows.norm_rows, common | (operands or {}), wait=wait)

    def _norm_read(self, weight: AnyArray) -> None:
        """Gathers the rows that are read, and normalises them."""
        operands = {
            rows.X: address(self._all.hidden),
            rows.X_STRIDE: stride(self._all.hidden),
            rows.INDEX: words.READ_TOKENS,
            rows.KEPT: address(self._read.hidden),
            rows.KEPT_STRIDE: stride(self._read.hidden),
        }
        self._norm(self._read, weight, operands)

    def _product(
        self, layer: LinearWeight, x: AnyArray | None, quantised: Activations, count: int
    ) -> tuple[DotPath | None, dict[int, int]]:
        """The common arguments of operations with a linear layer: dot path and operands."""
        weight = layer.weight
        path = None if weight.form.bits == 32 else self._dot_path
        if path is not None:
            source = quantised.as_input()
        else:
            assert x is not None, "float32 activations were not kept"
            source = {linear.X: address(x), linear.X_STRIDE: stride(x)}
        return path, source | {
            linear.WEIGHT: address(weight.data),
            linear.NUM_BLOCKS: weight.num_blocks,
            linear.NUM_GROUPS: weight.num_groups,
            linear.BLOCK_BYTES: weight.data.shape[1],
            linear.ROWS: count,
            linear.BIAS: 0 if layer.bias is None else address(layer.bias),
        }

    def _fetch_for(self, index: int, *layers: LinearWeight) -> None:
        """From now on linear layers, those of ``layers``, fetch keys and values of a layer."""
        self._fetched = self._pages.keys[:, index]
        self._fetch_work = sum(_work(layer) for layer in layers)
        self._fetch_done = 0

    def _share(self, *layers: LinearWeight) -> dict[int, int]:
        """The pages that an operation prefetches, by its share of the work before attention."""
        pages = self._fetched
        if pages is None:
            return {}
        first = self._fetch_done
        self._fetch_done += sum(_work(layer) for layer in layers)
        return {
            fetch.FETCH: address(pages),
            fetch.FETCH_BYTES: pages.shape[1] * pages.strides[1],
            fetch.FETCH_STRIDE: pages.strides[0],
            fetch.FETCH_FIRST: (first << 16) // self._fetch_work,
            fetch.FETCH_END: (self._fetch_done << 16) // self._fetch_work,
        }

    def _task_size(self, num_pieces: int) -> int:
        return max(1, num_pieces // (_TASKS_A_THREAD * self._num_threads))

    def _add(
        self,
        tokens: _Tokens,
        layer: LinearWeight,
        x: AnyArray | None,
        quantised: Activations,
        norm: AnyArray | None,
    ) -> None:
        """Adds a linear layer's results, or their norm, to the hidden rows."""
        added = self._buffers.added
        if norm is None or added is None:
            self._linear(tokens, layer, x, quantised, tokens.hidden, add=True)
            return
        self._linear(tokens, layer, x, quantised, added)
        operands = {
            rows.X: address(added),
            rows.X_STRIDE: stride(added),
            rows.WIDTH: self._config.hidden_size,
            rows.ROWS: words.NUM_TOKENS,
            rows.OUT: address(tokens.hidden),
            rows.OUT_STRIDE: stride(tokens.hidden),
            rows.WEIGHT: address(norm),
            rows.EPSILON: float_operand(self._config.norm_eps),
        }
        self._emit(tokens, rows.add_norm_rows, operands)

    def _linear(
        self,
        tokens: _Tokens,
        layer: LinearWeight,
        x: AnyArray | None,
        quantised: Activations,
        y: AnyArray,
        *,
        add: bool = False,
        count: int = words.NUM_TOKENS,
    ) -> None:
        path, operands = self._product(layer, x, quantised, count)
        self._emit(
            tokens,
            linear.linear_op(layer.weight.form.name, path),
            operands
            | self._share(layer)
            | {
                linear.Y: address(y),
                linear.Y_STRIDE: stride(y),
                linear.ACCUMULATE: add,
                linear.TASK_BLOCKS: self._task_size(layer.weight.num_blocks),
            },
        )

    def _heads(
        self,
        kind: int,
        tokens: _Tokens,
        layer: LinearWeight,
        angles: RotaryTable,
        norm: AnyArray | None,
        pages: AnyArray | None = None,
    ) -> None:
        config, buffers = self._config, self._buffers
        path, operands = self._product(layer, tokens.normed, tokens.normed_q, words.NUM_TOKENS)
        cosines, sines = angles
        operands |= self._share(layer) | {
            linear_fused.HEAD_KIND: kind,
            linear_fused.HEAD_DIM: config.head_dim,
            linear_fused.HEAD_OUT: address(buffers.queries),
            linear_fused.HEAD_OUT_STRIDE: stride(buffers.queries),
            linear_fused.ROPE_DIM: config.rope.dim,
            linear_fused.COSINES: address(cosines),
            linear_fused.SINES: address(sines),
            linear_fused.QUERY_SCALE: float_operand(config.attention_scale),
            linear_fused.HEAD_NORM: 0 if norm is None else address(norm),
            linear_fused.HEAD_EPSILON: float_operand(config.head_norm_eps),
        }
        if pages is not None:
            operands |= {
                linear_fused.PAGES: address(pages),
                linear_fused.PAGE_SIZE: self._pages.page_size,
                linear_fused.HEAD_BYTES: pages.strides[1],
                linear_fused.PAGE_BYTES: pages.strides[0],
            }
        # The three kinds write apart from each other, so only the last one waits.
        operation = linear_fused.heads_op(layer.weight.form.name, path)
        self._emit(tokens, operation, operands, wait=kind == linear_fused.VALUES)

    def _gated(self, tokens: _Tokens, layer: CpuLayer) -> None:
        buffers = self._buffers
        path, operands = self._product(layer.gate, tokens.normed, tokens.normed_q, words.NUM_TOKENS)
        gate, up = layer.gate.weight, layer.up.weight
        if buffers.gated is not None:
            operands |= {
                linear_fused.OUT: address(buffers.gated),
                linear_fused.OUT_STRIDE: stride(buffers.gated),
            }
        else:
            operands |= buffers.gated_q.as_output()
        self._emit(
            tokens,
            linear_fused.gated_op(self._config.gate, gate.form.name, up.form.name, path),
            operands
            | self._share(layer.gate, layer.up)
            | {
                linear_fused.UP_WEIGHT: address(up.data),
                linear_fused.UP_BLOCK_BYTES: up.data.shape[1],
                linear_fused.TASK_UNITS: self._task_size(gate.num_blocks // 2),
            },
        )

    def _attend(self, tokens: _Tokens, keys: AnyArray, values: AnyArray, window: int) -> None:
        config, buffers = self._config, self._buffers
        operands = {
            attention.Q: address(buffers.queries),
            attention.Q_STRIDE: stride(buffers.queries),
            attention.OUT: address(buffers.attended),
            attention.OUT_STRIDE: stride(buffers.attended),
            attention.KEYS: address(keys),
            attention.VALUES: address(values),
            attention.PAGE_SIZE: self._pages.page_size,
            attention.HEAD_BYTES: keys.strides[1],
            attention.PAGE_BYTES: keys.strides[0],
            attention.NUM_KV_HEADS: config.num_kv_heads,
            attention.GROUP_SIZE: config.num_heads // config.num_kv_heads,
            attention.HEAD_DIM: config.head_dim,
            attention.WINDOW: window,
        }
        whole_groups = config.head_dim % GROUP == 0
        if self._dot_path is not None and whole_groups:
            operands |= buffers.attended_q.as_output()
        self._emit(tokens, attention.attend_op(self._attention_path), operands)
        if self._dot_path is not None and not whole_groups:
            source = {
                rows.X: address(buffers.attended),
                rows.X_STRIDE: stride(buffers.attended),
                rows.WIDTH: config.num_heads * config.head_dim,
                rows.ROWS: words.NUM_TOKENS,
            }
            self._emit(tokens, rows.quantise_rows, source | buffers.attended_q.as_output())


def _heads(layer: CpuLayer) -> tuple[LinearWeight, LinearWeight, LinearWeight]:
    return layer.query, layer.key, layer.value


def _work(layer: LinearWeight) -> int:
    return layer.weight.num_blocks * layer.weight.num_groups
