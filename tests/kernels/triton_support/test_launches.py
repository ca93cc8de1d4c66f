"""The launches of a whole step compile for a GPU as they are made: argument for argument, with the
types, alignments and constants of the real call. Nothing runs, so no GPU is needed."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("interpreted kernels can't be compiled", allow_module_level=True)

from triton.backends.compiler import GPUTarget  # noqa: E402

from ramet.kernels import activation, rotary  # noqa: E402
from ramet.kernels.attention import attention as paged_attention  # noqa: E402
from ramet.kernels.attention.costs import attention_costs  # noqa: E402
from ramet.kernels.attention.inputs import AttentionInputs  # noqa: E402
from ramet.kernels.attention.plan import SLOT, build_plan  # noqa: E402
from ramet.kernels.linear import linear  # noqa: E402
from ramet.kernels.norm import norm  # noqa: E402
from ramet.kernels.sampling import triton as sampling_gpu  # noqa: E402
from ramet.runtime.model.config import ModelConfig  # noqa: E402
from ramet.runtime.model.rotary import Rope  # noqa: E402
from ramet.runtime.model.torch.decoder import TorchDecoder  # noqa: E402
from ramet.runtime.model.torch.device_arrays import pack, unpack  # noqa: E402
from ramet.runtime.model.torch.step import StepInputs  # noqa: E402
from ramet.runtime.model.torch.weights import random_torch_weights  # noqa: E402

MODULES = (activation, linear, norm, paged_attention, rotary, sampling_gpu)
TARGETS = {"sm_90": GPUTarget("cuda", 90, 32), "gfx942": GPUTarget("hip", "gfx942", 64)}


@pytest.fixture(params=TARGETS)
def compiled(request, monkeypatch, stand_in_driver):
    """Names of the kernels that were compiled in place of being launched."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    names = []

    def compile_only(kernel, grid):
        def launch(*args, **kwargs):
            assert all(size > 0 for size in grid)
            assert kernel.run(*args, grid=grid, warmup=True, **kwargs) is not None
            names.append(kernel.fn.__name__)

        return launch

    cache = Path(tempfile.gettempdir()) / f"ramet-triton-{triton.__version__}"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    monkeypatch.setattr(JITFunction, "__getitem__", compile_only)
    for module in MODULES:
        monkeypatch.setattr(module, "uses_triton", lambda _tensor: True, raising=False)
        monkeypatch.setattr(module, "architecture", lambda _device: request.param, raising=False)
    kernels = [v for m in MODULES for v in vars(m).values() if isinstance(v, JITFunction)]
    before = driver._active
    driver.set_active(stand_in_driver(TARGETS[request.param]))
    for kernel in kernels:
        kernel.device_caches.clear()
    yield names
    driver._active = before
    for kernel in kernels:
        kernel.device_caches.clear()


def config(**changes):
    values = {
        "architecture": "qwen3",
        "name": "random",
        "num_layers": 2,
        "hidden_size": 256,
        "ffn_size": 512,
        "vocab_size": 1000,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 64,
        "max_context_len": 4096,
        "rope": Rope(theta=1e4, dim=64),
        "rope_layout": "half_split",
        "norm_eps": 1e-6,
        "head_norm_eps": 1e-6,
        "tied_embeddings": True,
        "qkv_bias": True,
        "output_bias": False,
        "qk_norm": "head",
    }
    return ModelConfig(**(values | changes))


def make_decoder(format_):
    model = config()
    weights = random_torch_weights(model, device="cpu", dtype=torch.bfloat16, format=format_)
    pages = torch.zeros(2, 2, 500, 2, 16, 64, dtype=torch.bfloat16)
    return TorchDecoder(model, weights, pages, max_position=4096, batch_invariant=False)


def run_step(decoder, tree, logit_tokens):
    """A step whose arrays come from one buffer, as they do on a GPU; returns its plan."""
    plan = build_plan(
        tree.page_tables,
        tree.context_lens,
        tree.row_starts,
        page_size=16,
        shape=paged_attention.attention_shape(6, 2, 64, torch.bfloat16, "sm_90"),
        costs=attention_costs("sm_90"),
        grouping="always",
    )
    arrays = {
        "tokens": np.arange(tree.num_tokens, dtype=np.int32),
        "logit_tokens": np.array(logit_tokens, np.int32),
        "items": plan.items,
        "merge_tokens": plan.merge_tokens,
        "merge_starts": plan.merge_starts,
        "merge_slots": plan.merge_slots,
        "page_tables": tree.page_tables,
        "positions": tree.positions,
    }
    tensors = unpack(pack(arrays, pin_memory=False), arrays)
    inputs = StepInputs(
        token_ids=tensors["tokens"],
        slots=tensors["tokens"],
        logit_tokens=tensors["logit_tokens"],
        attention=AttentionInputs(
            items=tensors["items"],
            num_narrow=plan.num_narrow,
            num_slots=plan.num_slots,
            merge_tokens=tensors["merge_tokens"],
            merge_starts=tensors["merge_starts"],
            merge_slots=tensors["merge_slots"],
            page_tables=tensors["page_tables"],
            positions=tensors["positions"],
        ),
    )
    with torch.inference_mode():
        logits = decoder.forward(inputs)
    assert logits.shape == (len(logit_tokens), 1000)
    return plan


@pytest.mark.parametrize("format_", ["q4", "q8"])
def test_a_step_of_decode_and_prefill_rows(compiled, row_tree, format_):
    tree = row_tree(16, [(0, 0, 1000, 1), (0, 40, 30, 1), (0, 40, 5, 60), (0, 0, 7, 1)])
    plan = run_step(make_decoder(format_), tree, [0, 1, 5])
    assert 0 < plan.num_narrow < plan.num_items
    assert (plan.items[:, SLOT] >= 0).any()
    assert set(compiled) == {
        "_rms_norm",
        "_linear",
        "_rotate_and_write",
        "_attend",
        "_merge",
        "_silu_mul",
    }


def test_steps_of_other_sizes_compile_nothing_new(compiled, row_tree):
    """A serving engine meets every size; none may stop it for a compiler."""
    decoder = make_decoder("q4")
    for new_tokens in (1, 30, 90):  # products of each size of tile
        rows = [(0, 0, 1000, 1), (0, 40, 30, new_tokens), (0, 40, 5, 1), (0, 0, 7, 1)]
        run_step(decoder, row_tree(16, rows), [0])
        run_step(decoder, row_tree(16, rows), range(3 + new_tokens))
    kernels = [v for m in MODULES for v in vars(m).values() if hasattr(v, "device_caches")]
    before = [len(kernel.device_caches[0][0]) for kernel in kernels]
    rng = np.random.default_rng(0)
    for _ in range(8):
        count = int(rng.integers(1, 20))
        rows = [
            (int(a), int(b), int(c), int(d))
            for a, b, c, d in zip(
                rng.integers(0, 9, count),
                rng.integers(0, 20, count),
                rng.integers(0, 90, count),
                rng.choice([1, 1, 1, 30], count),
                strict=True,
            )
        ]
        tree = row_tree(16, rows)
        run_step(decoder, tree, range(int(rng.integers(1, tree.num_tokens + 1))))
    assert [len(kernel.device_caches[0][0]) for kernel in kernels] == before


def test_masks_and_sampling(compiled):
    num_rows, vocab_size = 3, 1000
    logits = torch.zeros(num_rows, vocab_size)
    ints = torch.zeros(num_rows, dtype=torch.int32)
    floats = torch.ones(num_rows)
    masks = torch.zeros(2, 32, dtype=torch.int32)
    starts = torch.arange(num_rows + 1, dtype=torch.int32)
    rows = {
        **dict.fromkeys(("temperature", "top_p", "min_p", "bias_values"), floats),
        **dict.fromkeys(("presence_penalty", "frequency_penalty", "repetition_penalty"), floats),
        **dict.fromkeys(("top_k", "mask_rows", "num_logprobs", "targets"), ints),
        **dict.fromkeys(("bias_token_ids", "seen_token_ids", "seen_output_counts"), ints),
        **dict.fromkeys(("bias_starts", "seen_starts"), starts),
        **dict.fromkeys(("seeds", "positions"), torch.zeros(num_rows, dtype=torch.int64)),
        "masks": masks,
    }
    result = sampling_gpu.sample_gpu(logits, rows, num_top=2)
    assert result.top_token_ids.shape == (3, 2)
    assert compiled == ["_adjust", "_choose"]
