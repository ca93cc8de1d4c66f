"""Linear layers whose weights stay packed: 4-bit and 8-bit groups of 32, unpacked on the way.

A weight of N outputs and K inputs is stored a row an output:

=======  ==========================  ==============================================================
format   ``codes``                   a weight is
=======  ==========================  ==============================================================
q4       uint8 [N, K / 2]            ``code * scale + minimum``; byte j holds the codes of inputs 2j
                                     (low half) and 2j + 1 (high half)
q8       int8 [N, K]                 ``code * scale``
dense    float [N, K]                ``code``
=======  ==========================  ==============================================================

with ``scales`` and ``minimums`` float16 [N, K / 32]. These hold GGUF's Q4_0, Q4_1 and Q8_0 exactly.
A tile of weights is unpacked in registers and goes straight into the matrix product, so what is
read from memory is the packed size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from ramet.kernels.triton_support.dispatch import architecture, kernel_config, uses_triton
from ramet.kernels.triton_support.triton_language import tl, triton

GROUP_SIZE = 32
"""Inputs that share a scale."""

WeightFormat = Literal["q4", "q8", "dense"]


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight matrix of ``num_outputs`` rows; see the module's table."""

    format: WeightFormat
    codes: torch.Tensor
    scales: torch.Tensor | None = None
    minimums: torch.Tensor | None = None

    @property
    def num_outputs(self) -> int:
        return len(self.codes)

    @property
    def num_inputs(self) -> int:
        return self.codes.shape[1] * (2 if self.format == "q4" else 1)

    @property
    def num_bytes(self) -> int:
        tensors = (self.codes, self.scales, self.minimums)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)

    def to(self, device: torch.device | str) -> PackedWeight:
        return PackedWeight(
            self.format,
            self.codes.to(device),
            None if self.scales is None else self.scales.to(device),
            None if self.minimums is None else self.minimums.to(device),
        )

    def take_rows(self, index: torch.Tensor) -> PackedWeight:
        """The rows ``index``, packed as they are."""
        return PackedWeight(
            self.format,
            self.codes[index],
            None if self.scales is None else self.scales[index],
            None if self.minimums is None else self.minimums[index],
        )

    def rows(self, index: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The unpacked rows ``index``: an embedding lookup, [len(index), K] of ``dtype``."""
        return self.take_rows(index).unpack(dtype)

    def unpack(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The weights, [N, K]."""
        if self.format == "dense":
            return self.codes.to(dtype)
        compute = torch.promote_types(dtype, torch.float32)
        codes = self.codes
        if self.format == "q4":
            codes = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(1)
        assert self.scales is not None
        groups = codes.view(len(codes), -1, GROUP_SIZE).to(compute) * self.scales[..., None]
        if self.minimums is not None:
            groups += self.minimums[..., None]
        return groups.flatten(1).to(dtype)

    @staticmethod
    def concatenate(weights: list[PackedWeight]) -> PackedWeight | None:
        """One weight with all the rows, or None if the formats differ."""
        first = weights[0]
        if any(
            weight.format != first.format or weight.codes.dtype != first.codes.dtype
            for weight in weights
        ):
            return None

        def joined(parts: list[torch.Tensor | None]) -> torch.Tensor | None:
            tensors = [part for part in parts if part is not None]
            return torch.cat(tensors) if tensors else None

        return PackedWeight(
            first.format,
            torch.cat([weight.codes for weight in weights]),
            joined([weight.scales for weight in weights]),
            joined([weight.minimums for weight in weights]),
        )


def pack_q4(weight: torch.Tensor) -> PackedWeight:
    """Rounds float weights [N, K] to 4 bits: each group spans its least to its largest."""
    groups = weight.float().view(len(weight), -1, GROUP_SIZE)
    minimums = groups.amin(-1).half()
    scales = ((groups.amax(-1) - minimums.float()) / 15).half()
    safe = scales.float().masked_fill(scales == 0, 1.0)
    codes = ((groups - minimums.float()[..., None]) / safe[..., None]).round().clamp(0, 15)
    pairs = codes.to(torch.uint8).view(len(weight), -1, 2)
    return PackedWeight("q4", pairs[..., 0] | (pairs[..., 1] << 4), scales, minimums)


def pack_q8(weight: torch.Tensor) -> PackedWeight:
    """Rounds float weights [N, K] to 8 bits: each group spans its largest magnitude."""
    groups = weight.float().view(len(weight), -1, GROUP_SIZE)
    scales = (groups.abs().amax(-1) / 127).half()
    safe = scales.float().masked_fill(scales == 0, 1.0)
    codes = (groups / safe[..., None]).round().clamp(-127, 127).to(torch.int8)
    return PackedWeight("q8", codes.flatten(1), scales)


@triton.jit(do_not_specialize=["num_rows"])
def _linear(  # type: ignore[no-untyped-def]
    out,
    x,
    codes,
    scales,
    minimums,
    bias,
    num_rows,
    num_outputs,
    num_inputs,
    x_stride,
    out_stride,
    FORMAT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """One tile of outputs; the tiles of one weight run next to each other and share its reads."""
    num_m = tl.cdiv(num_rows, BLOCK_M)
    tile_n = tl.program_id(0) // num_m
    m = (tl.program_id(0) % num_m) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    in_m = m < num_rows
    in_n = n < num_outputs
    x_rows = x + m.to(tl.int64)[:, None] * x_stride
    n64 = n.to(tl.int64)[:, None]
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, num_inputs, BLOCK_K):
        in_k = start + k < num_inputs
        x_tile = tl.load(
            x_rows + (start + k)[None, :], mask=in_m[:, None] & in_k[None, :], other=0.0
        )
        if FORMAT == 0:
            w = tl.load(
                codes + n64 * num_inputs + (start + k)[None, :],
                mask=in_n[:, None] & in_k[None, :],
                other=0.0,
            )
        else:
            if FORMAT == 4:
                half = start // 2 + tl.arange(0, BLOCK_K // 2)
                packed = tl.load(
                    codes + n64 * (num_inputs // 2) + half[None, :],
                    mask=in_n[:, None] & (half < num_inputs // 2)[None, :],
                    other=0,
                )
                code = tl.join(packed & 15, packed >> 4)
            else:
                code = tl.load(
                    codes + n64 * num_inputs + (start + k)[None, :],
                    mask=in_n[:, None] & in_k[None, :],
                    other=0,
                )
            group = start // 32 + tl.arange(0, BLOCK_K // 32)
            in_group = in_n[:, None] & (group < num_inputs // 32)[None, :]
            offset = n64 * (num_inputs // 32) + group[None, :]
            scale = tl.load(scales + offset, mask=in_group, other=0.0).to(tl.float32)
            value = code.reshape(BLOCK_N, BLOCK_K // 32, 32).to(tl.float32) * scale[:, :, None]
            if FORMAT == 4:
                least = tl.load(minimums + offset, mask=in_group, other=0.0).to(tl.float32)
                value += least[:, :, None]
            w = value.reshape(BLOCK_N, BLOCK_K)
        total = tl.dot(x_tile, tl.trans(w.to(x_tile.dtype)), acc=total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(bias + n, mask=in_n, other=0.0).to(tl.float32)[None, :]
    tl.store(
        out + m.to(tl.int64)[:, None] * out_stride + n[None, :],
        total.to(out.dtype.element_ty),
        mask=in_m[:, None] & in_n[None, :],
    )


def linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    batch_invariant: bool = False,
) -> torch.Tensor:
    """``x @ weight.T + bias``.

    Args:
        x: [M, K]; K a multiple of 32 for a packed weight.
        bias: [N] or None.
        out_dtype: x's by default; float32 keeps the accumulators, as logits want.
        batch_invariant: one tile size whatever M is, so that no row's arithmetic depends on how
            many share the product. Otherwise products of up to 16, up to 64 and more rows have
            tiles of their own, and dense ones go to the vendor's library.

    Returns:
        [M, N].
    """
    if not uses_triton(x):
        return linear_reference(x, weight, bias, out_dtype=out_dtype)
    out_dtype = out_dtype or x.dtype
    if weight.format == "dense" and x.is_cuda and not batch_invariant:
        return torch.nn.functional.linear(x, weight.codes, bias).to(out_dtype)
    num_rows, num_inputs = x.shape
    if num_inputs != weight.num_inputs or x.stride(1) != 1:
        raise ValueError(f"x must be [M, {weight.num_inputs}] and contiguous in its rows")
    if not weight.codes.is_contiguous():
        raise ValueError("a packed weight must be contiguous")
    out = torch.empty(num_rows, weight.num_outputs, dtype=out_dtype, device=x.device)
    if num_rows == 0:
        return out
    size = "small" if num_rows <= 16 or batch_invariant else "medium" if num_rows <= 64 else "large"
    config = kernel_config("linear", f"{weight.format}_{size}", architecture(x.device))
    tiles = -(-num_rows // config["BLOCK_M"]) * -(-weight.num_outputs // config["BLOCK_N"])
    _linear[(tiles,)](
        out,
        x,
        weight.codes,
        weight.codes if weight.scales is None else weight.scales,
        weight.codes if weight.minimums is None else weight.minimums,
        x if bias is None else bias,
        num_rows,
        weight.num_outputs,
        num_inputs,
        x.stride(0),
        out.stride(0),
        FORMAT={"dense": 0, "q4": 4, "q8": 8}[weight.format],
        HAS_BIAS=bias is not None,
        **config,
    )
    return out


def linear_reference(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """``linear`` in torch; computes in float64 if x is, else in float32."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    bias = None if bias is None else bias.to(dtype)
    result = torch.nn.functional.linear(x.to(dtype), weight.unpack(dtype), bias)
    return result.to(out_dtype or x.dtype)
