"""Root-mean-square normalisation (Zhang and Sennrich 2019), with the residual added on the way."""

from __future__ import annotations

import torch

from ramet.kernels.triton_support.dispatch import next_power_of_2, uses_triton
from ramet.kernels.triton_support.triton_language import tl, triton


@triton.jit
def _rms_norm(  # type: ignore[no-untyped-def]
    out,
    x,
    residual,
    weight,
    width,
    eps,
    x_stride,
    out_stride,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row. The sum with the residual is rounded to its type before it is normalised, so that
    the row is the same whether or not the addition was fused."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        value += tl.load(residual + row * width + column, mask=inside, other=0.0).to(tl.float32)
        rounded = value.to(residual.dtype.element_ty)
        tl.store(residual + row * width + column, rounded, mask=inside)
        value = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / width + eps)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        out + row * out_stride + column,
        (value * scale * gain).to(out.dtype.element_ty),
        mask=inside,
    )


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """``x / sqrt(mean(x ** 2) + eps) * weight`` over the last dimension.

    Args:
        x: [..., width]; rows may be strided.
        weight: [width].
        residual: [N, width], contiguous; becomes ``residual + x`` in place, which is what is
            normalised.

    Returns:
        A new tensor of x's shape and type.
    """
    if not uses_triton(x):
        return rms_norm_reference(x, weight, eps, residual)
    width = x.shape[-1]
    rows = x.reshape(-1, width)
    if rows.stride(1) != 1 or (residual is not None and not residual.is_contiguous()):
        raise ValueError("x must be contiguous in its last dimension, and residual as a whole")
    out = torch.empty(rows.shape, dtype=x.dtype, device=x.device)
    if len(rows):
        block = next_power_of_2(width)
        _rms_norm[(len(rows),)](
            out,
            rows,
            rows if residual is None else residual,
            weight,
            width,
            eps,
            rows.stride(0),
            out.stride(0),
            HAS_RESIDUAL=residual is not None,
            BLOCK=block,
            num_warps=min(8, max(1, block // 512)),
        )
    return out.view(x.shape)


def rms_norm_reference(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor:
    """``rms_norm`` in torch; computes in float64 if x is, else in float32."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    value = x.to(dtype)
    if residual is not None:
        residual.copy_((value + residual.to(dtype).view(x.shape)).view(residual.shape))
        value = residual.view(x.shape).to(dtype)
    scale = torch.rsqrt(value.square().mean(-1, keepdim=True) + eps)
    return (value * scale * weight.to(dtype)).to(x.dtype)


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> torch.Tensor:
    """LayerNorm (Ba et al. 2016) of the last dimension, in torch on every device.

    Args:
        weight, bias: of a shape that fits x's; the bias may be None.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    centred = wide - wide.mean(-1, keepdim=True)
    normed = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps) * weight
    return (normed if bias is None else normed + bias).to(x.dtype)
