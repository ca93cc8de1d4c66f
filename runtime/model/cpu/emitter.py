"""Emits stages of a CPU program: the operations that all kinds of layers share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ramet.kernels.attention import cpu as attention
from ramet.kernels.attention import cpu_int8 as attention_int8
from ramet.kernels.cpu.program import Stage, float_operand
from ramet.kernels.cpu_support import fetch
from ramet.kernels.cpu_support import step as words
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.features import AttentionPath, DotPath
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear import cpu_fused as linear_fused
from ramet.kernels.linear.cpu_product import linear_op
from ramet.kernels.linear.cpu_weights import GROUP
from ramet.kernels.norm import cpu as rows
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.buffers import Activations, AnyArray, Buffers, address, stride
from ramet.runtime.model.cpu.pages import KvPages
from ramet.runtime.model.cpu.weights import CpuFeedForward, CpuNorm, LinearWeight
from ramet.runtime.model.rotary import RopeKind

RotaryTable = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Cosines and sines, float32[positions, rope_dim / 2]."""
_TASKS_A_THREAD = 8


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one of a step's records, and their rows."""

    record: int
    hidden: AnyArray
    normed: AnyArray | None
    normed_q: Activations


class Emitter:
    """Collects stages; see ``decoder_program`` for its arguments."""

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
        self.all = Tokens(words.ALL, buffers.hidden, buffers.normed, buffers.normed_q)
        self.read = Tokens(words.READ, buffers.read_hidden, buffers.read_normed, buffers.read_q)
        self.config = config
        self.pages = pages
        self.buffers = buffers
        self.rotary = rotary
        self.dot_path = dot_path
        self._attention_path: AttentionPath = attention_path
        self._num_threads = num_threads
        self._fetched: AnyArray | None = None

    def emit(
        self, tokens: Tokens, operation: Op, operands: dict[int, int], *, wait: bool = True
    ) -> None:
        self.stages.append(Stage(operation, operands, wait, tokens.record))

    def norm(
        self,
        tokens: Tokens,
        norm: CpuNorm | None,
        operands: dict[int, int] | None = None,
        *,
        wait: bool = True,
    ) -> None:
        """Normalises hidden rows; copies them where there is no norm."""
        common = {
            rows.X: address(tokens.hidden),
            rows.X_STRIDE: stride(tokens.hidden),
            rows.WIDTH: self.config.hidden_size,
            rows.ROWS: words.NUM_TOKENS,
            rows.WEIGHT: 0 if norm is None else address(norm.weight),
            rows.NORM_BIAS: 0 if norm is None or norm.bias is None else address(norm.bias),
            rows.CENTRED: self.config.norm == "layer",
            rows.EPSILON: float_operand(self.config.norm_eps),
        }
        if tokens.normed is not None:
            common |= {rows.OUT: address(tokens.normed), rows.OUT_STRIDE: stride(tokens.normed)}
        if self.dot_path is not None:
            common |= tokens.normed_q.as_output()
        self.emit(tokens, rows.norm_rows, common | (operands or {}), wait=wait)

    def norm_read(self, norm: CpuNorm | None) -> None:
        """Gathers the rows that are read, and normalises them."""
        operands = {
            rows.X: address(self.all.hidden),
            rows.X_STRIDE: stride(self.all.hidden),
            rows.INDEX: words.READ_TOKENS,
            rows.KEPT: address(self.read.hidden),
            rows.KEPT_STRIDE: stride(self.read.hidden),
        }
        self.norm(self.read, norm, operands)

    def product(
        self,
        layer: LinearWeight,
        x: AnyArray | None,
        quantised: Activations,
        count: int,
        *,
        other: LinearWeight | None = None,
    ) -> tuple[DotPath | None, dict[int, int]]:
        """The common arguments of operations with a linear layer, and ``other``, if there is one,
        on the same rows: dot path and operands."""
        weight = layer.weight
        is_float = weight.form.is_float or (other is not None and other.weight.form.is_float)
        path = None if is_float else self.dot_path
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

    def fetch_nothing(self) -> None:
        """From now on linear layers fetch no keys and values."""
        self._fetched = None

    def fetch_for(self, index: int, *layers: LinearWeight) -> None:
        """From now on linear layers, those of ``layers``, fetch keys and values of a layer."""
        self._fetched = self.pages.keys[:, index]
        self._fetch_work = sum(_work(layer) for layer in layers)
        self._fetch_done = 0

    def share(self, *layers: LinearWeight) -> dict[int, int]:
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

    def task_size(self, num_pieces: int) -> int:
        return max(1, num_pieces // (_TASKS_A_THREAD * self._num_threads))

    def add(
        self,
        tokens: Tokens,
        layer: LinearWeight,
        x: AnyArray | None,
        quantised: Activations,
        norm: CpuNorm | None,
    ) -> None:
        """Adds a linear layer's results, or their norm, to the hidden rows."""
        added = self.buffers.added
        if norm is None or added is None:
            self.linear(tokens, layer, x, quantised, tokens.hidden, add=True)
            return
        self.linear(tokens, layer, x, quantised, added)
        self.add_normed(tokens, added, norm)

    def add_normed(self, tokens: Tokens, added: AnyArray, norm: CpuNorm) -> None:
        """Adds the norm of rows to the hidden rows."""
        operands = {
            rows.X: address(added),
            rows.X_STRIDE: stride(added),
            rows.WIDTH: self.config.hidden_size,
            rows.ROWS: words.NUM_TOKENS,
            rows.OUT: address(tokens.hidden),
            rows.OUT_STRIDE: stride(tokens.hidden),
            rows.WEIGHT: address(norm.weight),
            rows.EPSILON: float_operand(self.config.norm_eps),
        }
        self.emit(tokens, rows.add_norm_rows, operands)

    def linear(
        self,
        tokens: Tokens,
        layer: LinearWeight,
        x: AnyArray | None,
        quantised: Activations,
        y: AnyArray,
        *,
        add: bool = False,
        count: int = words.NUM_TOKENS,
    ) -> None:
        path, operands = self.product(layer, x, quantised, count)
        self.emit(
            tokens,
            linear_op(layer.weight.form.name, path),
            operands
            | self.share(layer)
            | {
                linear.Y: address(y),
                linear.Y_STRIDE: stride(y),
                linear.ACCUMULATE: add,
                linear.TASK_BLOCKS: self.task_size(layer.weight.num_blocks),
            },
        )

    def gated(self, tokens: Tokens, layer: CpuFeedForward) -> None:
        buffers = self.buffers
        path, operands = self.product(
            layer.gate, tokens.normed, tokens.normed_q, words.NUM_TOKENS, other=layer.up
        )
        gate, up = layer.gate.weight, layer.up.weight
        operands |= self.both_forms(buffers.gated, buffers.gated_q)
        self.emit(
            tokens,
            linear_fused.gated_op(self.config.gate, gate.form.name, up.form.name, path),
            operands
            | self.share(layer.gate, layer.up)
            | {
                linear_fused.UP_WEIGHT: address(up.data),
                linear_fused.UP_BLOCK_BYTES: up.data.shape[1],
                linear_fused.TASK_UNITS: self.task_size(gate.num_blocks // 2),
            },
        )

    def both_forms(self, rows: AnyArray | None, quantised: Activations) -> dict[int, int]:
        """Operands of an operation that gates: its results, in the forms that are read of them."""
        operands = {} if self.dot_path is None else quantised.as_output()
        if rows is not None:
            operands |= {linear_fused.OUT: address(rows), linear_fused.OUT_STRIDE: stride(rows)}
        return operands

    def attend(
        self, tokens: Tokens, index: int, *, sinks: AnyArray | None = None, raw: bool = False
    ) -> None:
        """Attention of a layer. ``raw``: its result is not quantised."""
        keys, values = self.pages.keys[:, index], self.pages.values[:, index]
        config, buffers = self.config, self.buffers
        operands = {
            attention.Q: address(buffers.queries),
            attention.Q_STRIDE: stride(buffers.queries),
            attention.OUT: address(buffers.attended),
            attention.OUT_STRIDE: stride(buffers.attended),
            attention.KEYS: address(keys),
            attention.VALUES: address(values),
            attention.PAGE_SIZE: self.pages.page_size,
            attention.HEAD_BYTES: keys.strides[1],
            attention.PAGE_BYTES: keys.strides[0],
            attention.NUM_KV_HEADS: config.num_kv_heads,
            attention.GROUP_SIZE: config.num_heads // config.num_kv_heads,
            attention.HEAD_DIM: config.head_dim,
            attention.WINDOW: config.window(index),
            attention_int8.INT8: self.pages.dtype == "int8",
            attention.SOFT_CAP: float_operand(config.attention_cap),
            attention.SINKS: 0 if sinks is None else address(sinks),
        }
        whole_groups = config.head_dim % GROUP == 0
        if raw:
            self.emit(tokens, attention.attend_op(self._attention_path), operands)
            return
        if self.dot_path is not None and whole_groups:
            operands |= buffers.attended_q.as_output()
        self.emit(tokens, attention.attend_op(self._attention_path), operands)
        if self.dot_path is not None and not whole_groups:
            source = {
                rows.X: address(buffers.attended),
                rows.X_STRIDE: stride(buffers.attended),
                rows.WIDTH: config.num_heads * config.head_dim,
                rows.ROWS: words.NUM_TOKENS,
            }
            self.emit(tokens, rows.quantise_rows, source | buffers.attended_q.as_output())


def _work(layer: LinearWeight) -> int:
    return layer.weight.num_blocks * layer.weight.num_groups
