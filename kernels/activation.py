"""The gates of SwiGLU and GeGLU (Shazeer 2020): SiLU or GELU of one half times the other."""

from __future__ import annotations

import torch

from ramet.kernels.triton_support.dispatch import architecture, kernel_config, uses_triton
from ramet.kernels.triton_support.triton_language import tl, triton


@triton.jit
def _silu_mul(out, gate_up, width, in_stride, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(gate_up + row * in_stride + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * in_stride + width + column, mask=inside, other=0.0)
    value = gate / (1.0 + tl.exp(-gate)) * up.to(tl.float32)
    tl.store(out + row * width + column, value.to(out.dtype.element_ty), mask=inside)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` of ``gate_up`` [N, 2 * width], gate first; returns [N, width]."""
    if not uses_triton(gate_up):
        return silu_mul_reference(gate_up)
    if gate_up.stride(1) != 1:
        raise ValueError("gate_up must be contiguous in its last dimension")
    num_rows, width = len(gate_up), gate_up.shape[1] // 2
    out = torch.empty(num_rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if num_rows:
        config = kernel_config("activation", "silu_mul", architecture(gate_up.device))
        _silu_mul[(num_rows, -(-width // config["BLOCK"]))](
            out, gate_up, width, gate_up.stride(0), **config
        )
    return out


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    """``silu_mul`` in torch; computes in float64 if the input is, else in float32."""
    gate, up = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32)).chunk(2, dim=1)
    return (torch.nn.functional.silu(gate) * up).to(gate_up.dtype)


def gelu_tanh_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``gelu(gate) * up``, by the tanh approximation (Hendrycks and Gimpel 2016), of ``gate_up``
    [N, 2 * width], gate first; returns [N, width]. In torch on every device."""
    gate, up = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32)).chunk(2, dim=1)
    return (torch.nn.functional.gelu(gate, approximate="tanh") * up).to(gate_up.dtype)


def clamped_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """``gate * sigmoid(1.702 * gate) * (up + 1)`` of ``gate_up`` [N, 2 * width], gate first, with
    gate up to 7 and up between -7 and 7 (gpt-oss, 2025); returns [N, width]. In torch on every
    device."""
    gate, up = gate_up.to(torch.promote_types(gate_up.dtype, torch.float32)).chunk(2, dim=1)
    gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
    return (gate * torch.sigmoid(1.702 * gate) * (up + 1.0)).to(gate_up.dtype)
