"""The packed products and attention, compiled as real models launch them, fit each GPU.

The launches are recorded: each argument has the type, alignment and value of the real call, since
these decide what Triton makes of a kernel (a row's length that is no multiple of 16 keeps its loads
out of the pipeline). Weights are memory that is never touched.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("interpreted kernels can't be compiled", allow_module_level=True)

from ramet.kernels.attention import attention  # noqa: E402
from ramet.kernels.attention.inputs import AttentionInputs  # noqa: E402
from ramet.kernels.linear import linear  # noqa: E402
from ramet.kernels.triton_support.aot import (  # noqa: E402
    SHARED_MEMORY_LIMITS,
    gpu_target,
    used_resources,
)

# hidden size, query heads, key/value heads, head dimension, feed-forward size
MODELS = {
    "8B": (4096, 32, 8, 128, 14336),
    "a quarter of 70B": (8192, 16, 2, 128, 7168),
    "Qwen3 8B": (4096, 32, 8, 128, 12288),
    "135M": (576, 9, 3, 64, 1536),
}
GROUP_SIZE = linear.GROUP_SIZE


@pytest.fixture(params=SHARED_MEMORY_LIMITS)
def launched(request, monkeypatch, stand_in_driver):
    """The architecture, and what has been launched on it: names to distinct compiled kernels."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    kernels = {}

    def record(kernel, grid):
        def launch(*args, **kwargs):
            compiled = kernel.run(*args, grid=grid, warmup=True, **kwargs)
            kernels.setdefault(kernel.fn.__name__, {})[compiled.hash] = compiled

        return launch

    arch = request.param
    cache = Path(tempfile.gettempdir()) / f"ramet-triton-{triton.__version__}"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    monkeypatch.setattr(JITFunction, "__getitem__", record)
    for module in (attention, linear):
        monkeypatch.setattr(module, "uses_triton", lambda _tensor: True)
        monkeypatch.setattr(module, "architecture", lambda _device: arch)
    functions = (attention._attend, attention._merge, linear._linear)
    before = driver._active
    driver.set_active(stand_in_driver(gpu_target(arch)))
    for function in functions:
        function.device_caches.clear()
    yield arch, kernels
    driver._active = before
    for function in functions:
        function.device_caches.clear()


def packed_weight(format_, num_outputs, num_inputs):
    scales = torch.empty(num_outputs, num_inputs // GROUP_SIZE, dtype=torch.float16)
    if format_ == "q4":
        codes = torch.empty(num_outputs, num_inputs // 2, dtype=torch.uint8)
        return linear.PackedWeight("q4", codes, scales, scales)
    return linear.PackedWeight("q8", torch.empty(num_outputs, num_inputs, dtype=torch.int8), scales)


def products(hidden, num_heads, num_kv_heads, head_dim, ffn):
    """Outputs and inputs of a layer's products."""
    qkv = (num_heads + 2 * num_kv_heads) * head_dim
    return [(qkv, hidden), (hidden, num_heads * head_dim), (2 * ffn, hidden), (hidden, ffn)]


def check(arch, name, kernels):
    for compiled in kernels[name].values():
        used = used_resources(compiled)
        assert used.spilled_bytes == 0, (name, used)
        assert 0 < used.shared_bytes <= SHARED_MEMORY_LIMITS[arch], (name, used)
        if arch.startswith("sm_"):
            assert used.num_async_copies > 0, (name, used)


@pytest.mark.parametrize("format_", ["q4", "q8"])
def test_products_are_pipelined_and_fit(launched, format_):
    arch, kernels = launched
    for shape in MODELS.values():
        for num_outputs, num_inputs in products(*shape):
            weight = packed_weight(format_, num_outputs, num_inputs)
            for num_rows in (1, 64, 256):
                linear.linear(torch.empty(num_rows, num_inputs, dtype=torch.bfloat16), weight)
    # One a tile size serves all shapes.
    assert len(kernels["_linear"]) == 3
    head = packed_weight(format_, 128256, 4096)
    x = torch.empty(1, 4096, dtype=torch.bfloat16)
    linear.linear(x, head, out_dtype=torch.float32)
    assert len(kernels["_linear"]) == 4
    check(arch, "_linear", kernels)


def test_attention_is_pipelined_and_fits(launched):
    arch, kernels = launched
    ints = torch.zeros(64, dtype=torch.int32)
    inputs = AttentionInputs(
        items=torch.zeros(4, 6, dtype=torch.int32),
        num_narrow=2,
        num_slots=4,
        merge_tokens=torch.zeros(0, dtype=torch.int32),
        merge_starts=ints[:1],
        merge_slots=ints[:0],
        page_tables=torch.zeros(4, 32, dtype=torch.int32),
        positions=ints,
    )
    for _, num_heads, num_kv_heads, head_dim, _ in MODELS.values():
        pages = torch.empty(9, num_kv_heads, 16, head_dim, dtype=torch.bfloat16)
        q = torch.empty(64, num_heads, head_dim, dtype=torch.bfloat16)
        attention.paged_attention(q, pages, pages, inputs, scale=0.1)
    check(arch, "_attend", kernels)
