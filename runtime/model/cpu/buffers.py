"""Scratch of a forward pass for the CPU kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.kernels.cpu_support import quantise
from ramet.kernels.cpu_support.buffers import aligned_empty
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear.cpu_weights import GROUP
from ramet.runtime.model.config import ModelConfig

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
        self.quants = aligned_empty((num_rows, width), np.int8)
        self.scales = aligned_empty(shape, np.float32)
        self.scaled_sums = aligned_empty(shape, np.float32)  # or bfloat16, in half of the memory
        self.sums = aligned_empty(shape, np.int32)

    def as_output(self) -> dict[int, int]:
        """Operands of an operation that fills them."""
        return {
            quantise.QUANTS: address(self.quants),
            quantise.QUANT_STRIDE: self.width,
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
            linear.X_STRIDE: self.width,
            linear.SCALES: address(self.scales),
            linear.SCALED_SUMS: address(self.scaled_sums),
            linear.SUMS: address(self.sums),
            linear.SCALE_STRIDE: self.width // GROUP * 4,
        }


class Buffers:
    """Scratch for steps of up to ``max_tokens`` tokens, and as many read ones, and ``max_logits``
    logit rows.

    ``normed``, ``read_normed`` and ``gated`` are None where activations are int8: they are only
    ever needed quantised. ``added`` is what attention or feed-forward gives before its norm, None
    where it has none. ``likeliest`` is for the tokens of greedy rows.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        head_rows: int,
        max_tokens: int,
        max_logits: int,
        quantised: bool,
        bf16_sums: bool,
    ) -> None:
        self.max_tokens = max_tokens
        self.max_logits = max_logits
        attention_size = config.num_heads * config.head_dim

        def floats(num_rows: int, width: int) -> AnyArray:
            return aligned_empty((num_rows, width), np.float32)

        self.hidden = floats(max_tokens, config.hidden_size)
        self.normed = None if quantised else floats(max_tokens, config.hidden_size)
        self.queries = floats(max_tokens, attention_size)
        self.attended = floats(max_tokens, attention_size)
        self.gated = None if quantised else floats(max_tokens, config.ffn_size)
        self.added = floats(max_tokens, config.hidden_size) if config.post_norms else None
        self.read_hidden = floats(max_tokens, config.hidden_size)
        self.read_normed = None if quantised else floats(max_tokens, config.hidden_size)
        self.logits = floats(max_logits, head_rows)
        self.likeliest = np.empty(max_logits, np.int32)

        def activations(width: int) -> Activations:
            return Activations(width, max_tokens, bf16_sums=bf16_sums)

        self.normed_q = activations(config.hidden_size)
        self.attended_q = activations(attention_size)
        self.gated_q = activations(config.ffn_size)
        self.read_q = activations(config.hidden_size)
