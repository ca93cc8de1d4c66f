"""Scratch of a forward pass for the CPU kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu_support import quantise
from ramet.kernels.cpu_support.buffers import CACHE_LINE, aligned_empty
from ramet.kernels.experts.cpu_route import ITEM_WORDS, max_items
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear.cpu_weights import GROUP
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.experts import Experts
from ramet.runtime.model.latent import Latent

AnyArray = npt.NDArray[np.generic]


def address(array: AnyArray) -> int:
    """The address of an array."""
    return int(array.ctypes.data)


def stride(array: AnyArray) -> int:
    """Bytes from one row to the next."""
    return int(array.strides[0])


class Activations:
    """Rows that a linear layer reads: float32 rows elsewhere, or their int8 form, held here."""

    def __init__(self, width: int, num_rows: int, *, bf16_sums: bool) -> None:
        self.width = width
        self._bf16_sums = bf16_sums
        shape = (num_rows, width // GROUP)
        # Rows 4 KiB apart share the sets of a cache, and tile instructions read 16 at once.
        padded = width + CACHE_LINE if width % 1024 == 0 else width
        self.quants = aligned_empty((num_rows, padded), np.int8)
        self.scales = aligned_empty(shape, np.float32)
        self.scaled_sums = aligned_empty(shape, np.float32)  # or bfloat16, in half of the memory
        self.sums = aligned_empty(shape, np.int32)

    def as_output(self) -> dict[int, int]:
        """Operands of an operation that fills them."""
        return {
            quantise.QUANTS: address(self.quants),
            quantise.QUANT_STRIDE: stride(self.quants),
            quantise.SCALES: address(self.scales),
            quantise.SCALED_SUMS: address(self.scaled_sums),
            quantise.SUMS: address(self.sums),
            quantise.SCALE_STRIDE: self.width // GROUP * 4,
            quantise.BF16_SUMS: self._bf16_sums,
        }

    def as_input(self) -> dict[int, int]:
        """Operands of a linear layer that reads them."""
        return {
            linear.X: address(self.quants),
            linear.X_STRIDE: stride(self.quants),
            linear.SCALES: address(self.scales),
            linear.SCALED_SUMS: address(self.scaled_sums),
            linear.SUMS: address(self.sums),
            linear.SCALE_STRIDE: self.width // GROUP * 4,
        }

    def arrays(self) -> tuple[AnyArray, ...]:
        """All of it, each with as many rows."""
        return self.quants, self.scales, self.scaled_sums, self.sums


class ExpertBuffers:
    """Scratch of a mixture of experts. ``inputs``, ``gated`` and ``rows`` are sorted by expert; the
    first two are None unless ``keeps_floats``."""

    def __init__(
        self,
        config: ModelConfig,
        experts: Experts,
        *,
        max_tokens: int,
        keeps_floats: bool,
        bf16: bool,
    ) -> None:
        hidden, size = config.hidden_size, experts.ffn_size
        num_pairs = max_tokens * experts.num_used
        self.logits = _floats(max_tokens, -(-experts.num // 16) * 16)
        self.chosen = np.empty(num_pairs, np.int32)
        self.shares = np.empty(num_pairs, np.float32)
        self.pairs = np.empty(num_pairs, np.int32)
        num_items = max_items(num_pairs, experts.num)
        self.items = np.zeros(1 + ITEM_WORDS * num_items, np.int64)
        self.inputs = _floats(num_pairs, hidden) if keeps_floats else None
        self.gated = _floats(num_pairs, size) if keeps_floats else None
        self.inputs_q = Activations(hidden, num_pairs, bf16_sums=bf16)
        self.gated_q = Activations(size, num_pairs, bf16_sums=bf16)
        self.rows = _floats(num_pairs, hidden)
        self.shared = _floats(max_tokens if experts.shared_size else 0, hidden)


class LatentBuffers:
    """Scratch of multi-head latent attention: short vectors of queries, and of keys and values;
    heads made of the latter; attention's result without padding."""

    def __init__(self, latent: Latent, *, num_heads: int, max_tokens: int, bf16: bool) -> None:
        short_size = -(-(latent.rank + latent.rope_dim) // 16) * 16
        self.short_query = _floats(max_tokens, latent.query_rank)
        self.short_query_q = Activations(latent.query_rank, max_tokens, bf16_sums=bf16)
        self.short = _floats(max_tokens, short_size)
        self.short_q = Activations(latent.rank, max_tokens, bf16_sums=bf16)
        widest = max(latent.plain_dim, latent.value_dim)
        self.heads = _floats(max_tokens, num_heads * widest)
        self.packed = _floats(max_tokens, num_heads * latent.value_dim)


def _floats(num_rows: int, width: int) -> AnyArray:
    return aligned_empty((num_rows, width), np.float32)


class Buffers:
    """Scratch for steps of up to ``max_tokens`` tokens, and as many read ones, and ``max_logits``
    logit rows.

    ``normed``, ``read_normed`` and ``gated`` are None unless ``keeps_floats``: they are only ever
    needed quantised, but by experts' routers. ``projected`` is for heads that are normalised
    together, None if there are none. ``added`` is what attention or feed-forward gives before
    its norm, None where it has none. ``likeliest`` is for the tokens of greedy rows.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        head_rows: int,
        max_tokens: int,
        max_logits: int,
        keeps_floats: bool,
        bf16_sums: bool,
    ) -> None:
        self.max_tokens = max_tokens
        self.max_logits = max_logits
        attention_size = config.num_heads * config.head_dim

        self.hidden = _floats(max_tokens, config.hidden_size)
        drops_normed = not keeps_floats and config.experts is None
        self.normed = None if drops_normed else _floats(max_tokens, config.hidden_size)
        self.queries = _floats(max_tokens, attention_size)
        self.attended = _floats(max_tokens, attention_size)
        ffn_size = max(config.ffn_size, config.experts.shared_size if config.experts else 0)
        ffn_size = -(-ffn_size // GROUP) * GROUP
        self.gated = _floats(max_tokens, ffn_size) if keeps_floats else None
        self.added = _floats(max_tokens, config.hidden_size) if config.post_norms else None
        self.read_hidden = _floats(max_tokens, config.hidden_size)
        self.read_normed = None if drops_normed else _floats(max_tokens, config.hidden_size)
        self.logits = _floats(max_logits, head_rows)
        self.likeliest = np.empty(max_logits, np.int32)

        def activations(width: int) -> Activations:
            return Activations(width, max_tokens, bf16_sums=bf16_sums)

        self.normed_q = activations(config.hidden_size)
        self.attended_q = activations(attention_size)
        self.gated_q = activations(ffn_size)
        self.read_q = activations(config.hidden_size)
        self.projected: AnyArray | None = None
        if config.qk_norm == "all_heads":
            self.projected = _floats(max_tokens, attention_size)
        self.experts: ExpertBuffers | None = None
        if config.experts is not None:
            self.experts = ExpertBuffers(
                config,
                config.experts,
                max_tokens=max_tokens,
                keeps_floats=keeps_floats,
                bf16=bf16_sums,
            )
        self.latent: LatentBuffers | None = None
        if config.latent is not None:
            self.latent = LatentBuffers(
                config.latent, num_heads=config.num_heads, max_tokens=max_tokens, bf16=bf16_sums
            )
