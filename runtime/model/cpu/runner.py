"""The compiled CPU runner: what the engine uses where there is no GPU."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final, Literal

import numpy as np

from ramet.kernels.attention import cpu as attention
from ramet.kernels.cpu.program import Program, Team
from ramet.kernels.cpu_support.features import (
    AttentionPath,
    DotPath,
    best_attention_path,
    best_dot_path,
    pairs_middles,
    usable_cores,
)
from ramet.kernels.experts.cpu_route import scratch_bytes as expert_scratch_bytes
from ramet.kernels.linear import cpu_fused as linear_fused
from ramet.kernels.linear.cpu_product import unpacked_bytes
from ramet.kernels.linear.cpu_quantise import STORED_FLOATS, Quantise
from ramet.kernels.linear.cpu_weights import GROUP
from ramet.kernels.sampling.cpu import keep_to_masks
from ramet.kernels.sampling.rows import without_logprobs
from ramet.runtime.api.batch import Batch, Float32Array, Overlap, StepResult
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.warm_up import load_steps
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.cpu.buffers import Buffers
from ramet.runtime.model.cpu.emitter import RotaryTable
from ramet.runtime.model.cpu.load_weights import load_cpu_weights
from ramet.runtime.model.cpu.pages import KvPages, MemoryAhead
from ramet.runtime.model.cpu.program import decoder_program
from ramet.runtime.model.cpu.step import StepRecorder
from ramet.runtime.model.cpu.weights import CpuWeights, has_float_layers, packed_weights
from ramet.runtime.model.files.model_file import ModelFile
from ramet.runtime.model.load import open_model
from ramet.runtime.model.rotary import RopeKind, magnitude
from ramet.runtime.model.sampler import Sampler
from ramet.runtime.model.storage import KvDtype

ActivationKind = Literal["int8", "float32"]

DEFAULT_KV_BYTES = 512 * 2**20

_QUANTISED: Final = {"int8": "weights to 8 bits", "int4": "weights to 4 bits"}

_FETCHED_BYTES = 12 * 2**20
"""Keys and values of a layer that linear layers fetch: a shared cache holds them and weights."""


class CpuRunner:
    """Runs a decoder with compiled kernels (see ``ModelRunner``).

    A token's logits depend on its tokens alone, bit for bit: not on the batch, on how a prompt was
    cut, on the number of threads or on whether pages were shared.

    Args:
        model: a model, opened or by path.
        num_pages: pages of keys and values; None: as many as fit ``kv_bytes``. Memory is taken
            from the system when a page is first used, or about to be (``prepare_ahead``).
        page_size: tokens of a page, a multiple of 16.
        num_threads: threads of a step, the caller included; None: one a usable core. They sleep
            between steps.
        activations: what meets the weights: ``int8`` with a scale a group of 32 values, or
            ``float32``, slower, for reference. With ``int8``, queries and weights of attention
            meet keys and values as bfloat16 where the CPU multiplies those.
        dot_path: how products of int8 are summed; None: the fastest way of this machine.
        quantise: what weights stored as floats become; None: 8-bit values with ``int8``
            activations, and float32 with ``float32``.
        kv_dtype: how keys and values are stored: ``bf16``, or ``int8`` with a scale a head and
            token.
        group_pages: read pages that rows share once for all of them. Changes no result.
    """

    exact_in_any_batch: ClassVar[bool] = True

    def __init__(
        self,
        model: ModelFile | str | Path,
        *,
        num_pages: int | None = None,
        page_size: int = 16,
        kv_bytes: int = DEFAULT_KV_BYTES,
        num_threads: int | None = None,
        activations: ActivationKind = "int8",
        dot_path: DotPath | None = None,
        quantise: Quantise | None = None,
        kv_dtype: KvDtype = "bf16",
        group_pages: bool = True,
    ) -> None:
        file = model if isinstance(model, ModelFile) else open_model(model)
        if page_size <= 0 or page_size % 16:
            raise InvalidParameterError(
                f"page_size must be a multiple of 16, not {page_size}", param="page_size"
            )
        self.config = ModelConfig.from_gguf(file)
        page_bytes = KvPages.page_bytes(self.config, page_size, kv_dtype)
        if num_pages is None:
            num_pages = max(1, kv_bytes // page_bytes)
        reduced = activations == "int8"
        has_floats = any(
            len(each.shape) > 1 and each.type in STORED_FLOATS for each in file.tensors.values()
        )
        self._quantise = (quantise or "int8") if has_floats and reduced else None
        self._dot_path = (dot_path or best_dot_path()) if reduced else None
        self._attention_path: AttentionPath = best_attention_path() if reduced else "float32"
        self._middles = pairs_middles(self._dot_path)
        self._weights: CpuWeights = load_cpu_weights(
            file,
            self.config,
            quantise=quantise or "int8",
            exact=not reduced and quantise is None,
            middles=self._middles,
        )
        self._keeps_floats = not reduced or has_float_layers(self._weights)
        file.drop_cached()  # the weights are packed: the file is not read any more
        self._pages = KvPages.zeros(self.config, num_pages, page_size, kv_dtype)
        self._memory_ahead = MemoryAhead(self._pages)
        self._num_threads = num_threads or usable_cores()
        self._rotary = self._rotary_tables()
        group_size = self.config.num_heads // self.config.num_kv_heads
        layer_bytes = page_bytes // self.config.num_layers
        self._recorder = StepRecorder(
            limits=(self.vocab_size, self.max_context_len, page_size, num_pages),
            tiles=(
                group_pages,
                attention.max_tile_tokens(group_size),
                self.config.num_kv_heads,
                self._num_threads,
            ),
            scratch_bytes=max(
                attention.scratch_bytes(group_size, self.config.head_dim, int8=kv_dtype == "int8"),
                self._linear_scratch_bytes(),
                4 * self.config.hidden_size,
                expert_scratch_bytes(self.config.experts.num if self.config.experts else 0),
            ),
            max_fetched=_FETCHED_BYTES // layer_bytes,
        )
        self._buffers: Buffers | None = None
        self._program: Program | None = None
        self._team = Team(self._num_threads)
        self._sampler = Sampler(num_threads=self._num_threads)
        self._closed = False
        try:
            # Not in the thread that makes steps: an interrupt can end a first start's compiling.
            self._prepare(1, 1)
            load_steps()
        except BaseException:
            self.close()
            raise

    @property
    def description(self) -> str:
        path = self._dot_path or "float32"
        stored = _QUANTISED.get(self._quantise or "none", "weights as stored")
        return (
            f"{self.config.description} on the CPU ({path}, {self._num_threads} threads; {stored}, "
            f"keys and values in {self._pages.dtype})"
        )

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_context_len(self) -> int:
        return min(self.config.max_context_len, self.num_pages * self.page_size)

    @property
    def page_size(self) -> int:
        return self._pages.page_size

    @property
    def num_pages(self) -> int:
        return self._pages.num_pages

    @property
    def has_hidden_states(self) -> bool:
        return True

    @property
    def page_storage(self) -> CpuRunner:
        return self

    def run(self, batch: Batch, overlap: Overlap | None = None) -> StepResult:
        """See ``ModelRunner.run``.

        Where each row takes its likeliest token, the threads that compute the logits also find it;
        the logits are read again only where its mask forbids that one.
        """
        rows = batch.sampling
        if rows.all_greedy:
            num_rows = len(batch.logit_tokens)
            self._run(batch, overlap, num_greedy=num_rows)
            buffers = self._buffers
            assert buffers is not None
            token_ids = buffers.likeliest[:num_rows].copy()
            if len(rows.masks):
                keep_to_masks(
                    buffers.logits, self.vocab_size, rows.mask_rows, rows.masks, token_ids
                )
            sampled = without_logprobs(token_ids)
        else:
            sampled = self._sampler.sample(self._run(batch, overlap, num_greedy=0), rows)
        return StepResult(sampled, self._hidden_states() if len(batch.hidden_tokens) else None)

    def logits(self, batch: Batch) -> Float32Array:
        """A step without sampling; the logits are valid until the next. For tests of accuracy."""
        return self._run(batch, None, num_greedy=0)

    def _run(self, batch: Batch, overlap: Overlap | None, *, num_greedy: int) -> Float32Array:
        """The logits; ``likeliest`` of the buffers has the first ``num_greedy`` rows' tokens."""
        if self._closed:
            raise RuntimeError("the runner is closed")
        step = self._recorder.record(batch, num_greedy)
        self._memory_ahead.note_used(self._recorder.highest_page)
        self._pages.copy_pages(batch.page_copies)
        num_logits, num_hidden = len(batch.logit_tokens), len(batch.hidden_tokens)
        num_read = num_logits + num_hidden
        self._hidden_rows = slice(num_logits, num_read)
        buffers, program = self._prepare(max(batch.num_tokens, num_read), num_logits)
        self._team.run(program, step, overlap)
        logits: Float32Array = buffers.logits[:num_logits, : self.vocab_size]  # type: ignore[assignment]
        return logits

    def _hidden_states(self) -> Float32Array:
        """The final norm, row by row in float64, of the last step's rows in the buffers."""
        assert self._buffers is not None
        rows = self._buffers.read_hidden[self._hidden_rows].astype(np.float64)
        norm = self._weights.output_norm
        if self.config.norm == "layer":
            rows -= rows.mean(axis=1, keepdims=True)
        squares = np.square(rows).mean(axis=1, keepdims=True)
        normed = rows / np.sqrt(squares + self.config.norm_eps) * norm.weight
        if norm.bias is not None:
            normed += norm.bias
        states: Float32Array = normed.astype(np.float32)
        return states

    def prepare_ahead(self) -> bool:
        """See ``ModelRunner``: takes memory for pages before a step writes them."""
        return self._memory_ahead.take()

    @property
    def page_format(self) -> str:
        """How ``KvPages`` lays a page out: bfloat16 keys in pairs of dimensions, then values in
        pairs of tokens; or int8."""
        if self._pages.dtype == "int8":
            return "cpu int8 keys[layer, head, dim/2, token, 2] values[layer, head, token, dim]"
        return "cpu bf16 keys[layer, head, dim/2, token, 2] values[layer, head, token/2, dim, 2]"

    def read_page(self, page: int) -> bytes:
        return self._pages.read_page(page)

    def write_page(self, page: int, data: bytes) -> None:
        self._pages.write_page(page, data)

    def close(self) -> None:
        """Ends the threads and frees the pages and scratch; a second call does nothing."""
        self._closed = True
        self._team.close()
        self._sampler.close()
        self._program = self._buffers = None
        self._pages = KvPages.zeros(self.config, 0, self.page_size, self._pages.dtype)
        self._memory_ahead = MemoryAhead(self._pages)

    def _linear_scratch_bytes(self) -> int:
        config, path = self.config, self._dot_path
        widest = max(weight.num_groups for weight in packed_weights(self._weights))
        return max(
            unpacked_bytes(path, widest, 1),
            linear_fused.scratch_bytes(path, config.head_dim, config.hidden_size // GROUP),
        )

    def _rotary_tables(self) -> dict[RopeKind, RotaryTable]:
        """The table of each kind of layers."""
        positions = np.arange(self.max_context_len)[:, None]
        tables: dict[RopeKind, RotaryTable] = {}
        for kind, frequencies in self._weights.frequencies.items():
            angles, size = positions * frequencies, magnitude(self.config.rope, kind)
            tables[kind] = (
                (np.cos(angles) * size).astype(np.float32),
                (np.sin(angles) * size).astype(np.float32),
            )
        return tables

    def _prepare(self, num_tokens: int, num_logits: int) -> tuple[Buffers, Program]:
        """Scratch and program for a step, made again when a step outgrows them."""
        buffers, program = self._buffers, self._program
        if buffers is None or program is None:
            max_tokens, max_logits = 16, 1
        else:
            max_tokens, max_logits = buffers.max_tokens, buffers.max_logits
            if num_tokens <= max_tokens and num_logits <= max_logits:
                return buffers, program
        while max_tokens < num_tokens:
            max_tokens *= 2
        while max_logits < num_logits:
            max_logits *= 2
        head_rows = 16 * self._weights.head.weight.num_blocks
        buffers = Buffers(
            self.config,
            head_rows=head_rows,
            max_tokens=max_tokens,
            max_logits=max_logits,
            keeps_floats=self._keeps_floats,
            bf16_sums=self._middles,
        )
        program = decoder_program(
            self.config,
            self._weights,
            self._pages,
            buffers,
            self._rotary,
            dot_path=self._dot_path,
            attention_path=self._attention_path,
            num_threads=self._num_threads,
        )
        self._buffers, self._program = buffers, program
        return buffers, program
