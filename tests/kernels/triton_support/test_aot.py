"""Every Triton kernel compiles for every GPU that we name, spills nothing, and fits its memory.

No GPU is needed: Triton compiles ahead of time for a target. The cases are the kernels' own tuned
constants, so a bad entry in the tuning data fails here.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") == "1":
    pytest.skip("interpreted kernels can't be compiled", allow_module_level=True)

from ramet.kernels import activation, rotary  # noqa: E402
from ramet.kernels.attention import attention as paged_attention  # noqa: E402
from ramet.kernels.linear import linear  # noqa: E402
from ramet.kernels.norm import norm  # noqa: E402
from ramet.kernels.sampling import triton as sampling_gpu  # noqa: E402
from ramet.kernels.triton_support.aot import SHARED_MEMORY_LIMITS, compile_ahead  # noqa: E402
from ramet.kernels.triton_support.dispatch import kernel_config  # noqa: E402

ARCHITECTURES = ("sm_80", "sm_90", "gfx942")


def signature(kernel, **types):
    """Types of the arguments that aren't constants (named in capitals): i32 unless given."""
    names = (name for name in kernel.arg_names if not name.isupper())
    return {name: types.get(name, "i32") for name in names}


def attention_case(
    tile, head_dim, *, group=4, page_size=16, cap=False, window=False, float_="bf16"
):
    def build(arch):
        pointers = dict.fromkeys(("q", "k_pages", "v_pages", "out"), f"*{float_}")
        pointers |= dict.fromkeys(("items", "page_tables", "positions"), "*i32")
        kernel = paged_attention._attend
        types = signature(
            kernel,
            **pointers,
            partial="*fp32",
            lse="*fp32",
            sinks="*fp32",
            scale_log2="fp32",
            soft_cap="fp32",
        )
        constants = paged_attention._tile_config(tile, group, head_dim, arch)
        constants |= {
            "GROUP": group,
            "HEAD_DIM": head_dim,
            "PAGE_SIZE": page_size,
            "HAS_CAP": cap,
            "HAS_WINDOW": window,
            "HAS_SINKS": window,
        }
        return kernel, types, constants

    return build


def merge_case(_arch):
    kernel = paged_attention._merge
    pointers = dict.fromkeys(("merge_tokens", "merge_starts", "merge_slots"), "*i32")
    types = signature(kernel, out="*bf16", partial="*fp32", lse="*fp32", sinks="*fp32", **pointers)
    return kernel, types, {"HEAD_DIM": 128, "BLOCK_D": 128, "HAS_SINKS": True, "num_warps": 2}


def linear_case(size):
    def build(arch):
        kernel = linear._linear
        types = signature(
            kernel,
            out="*bf16",
            x="*bf16",
            codes="*bf16",
            scales="*fp16",
            minimums="*fp16",
            bias="*bf16",
        )
        constants = kernel_config("linear", f"dense_{size}", arch)
        constants |= {"FORMAT": 0, "HAS_BIAS": True}
        return kernel, types, constants

    return build


def norm_case(_arch):
    kernel = norm._rms_norm
    pointers = dict.fromkeys(("out", "x", "residual", "weight"), "*bf16")
    types = signature(kernel, eps="fp32", **pointers)
    return kernel, types, {"HAS_RESIDUAL": True, "BLOCK": 8192, "num_warps": 8}


def rotary_case(interleaved):
    def build(_arch):
        kernel = rotary._rotate_and_write
        pointers = dict.fromkeys(("qkv", "k_pages", "v_pages"), "*bf16")
        types = signature(kernel, cos_sin="*fp32", positions="*i32", slots="*i32", **pointers)
        constants = {
            "NUM_HEADS": 32,
            "NUM_KV_HEADS": 8,
            "HEAD_DIM": 128,
            "ROTARY_DIM": 128,
            "PAGE_SIZE": 16,
            "INTERLEAVED": interleaved,
            "BLOCK_PAIRS": 64,
            "BLOCK_D": 128,
            "num_warps": 1,
        }
        return kernel, types, constants

    return build


def activation_case(arch):
    kernel = activation._silu_mul
    types = signature(kernel, out="*bf16", gate_up="*bf16")
    return kernel, types, kernel_config("activation", "silu_mul", arch)


def adjust_case(arch):
    kernel = sampling_gpu._adjust
    floats = ("logits", "bias_values", "presence_penalty", "frequency_penalty")
    pointers = dict.fromkeys((*floats, "repetition_penalty"), "*fp32")
    ints = ("bias_starts", "bias_token_ids", "seen_starts", "seen_token_ids", "seen_output_counts")
    types = signature(kernel, **pointers, **dict.fromkeys(ints, "*i32"))
    return kernel, types, kernel_config("sampling", "adjust", arch)


def choose_case(arch):
    kernel = sampling_gpu._choose
    floats = ("logprobs", "top_logprobs", "logits", "temperature", "top_p", "min_p")
    ints = ("token_ids", "top_token_ids", "top_k", "mask_rows", "masks", "num_logprobs", "targets")
    types = signature(
        kernel,
        **dict.fromkeys(floats, "*fp32"),
        **dict.fromkeys(ints, "*i32"),
        seeds="*i64",
        positions="*i64",
    )
    return kernel, types, kernel_config("sampling", "choose", arch)


CASES = {
    **{
        f"attend_{tile}_{head_dim}": attention_case(tile, head_dim)
        for tile in ("narrow", "wide")
        for head_dim in (64, 128, 256)
    },
    # A size between two tiles' takes the larger one's, with more registers for what it leaves out.
    **{
        f"attend_{tile}_{head_dim}_{'_'.join(options)}": attention_case(
            tile, head_dim, **dict.fromkeys(options, True)
        )
        for tile, head_dim in (
            ("narrow", 128),
            ("wide", 64),
            ("wide", 128),
            ("wide", 160),
            ("wide", 192),
            ("wide", 256),
        )
        for options in (("cap",), ("cap", "window"))
    },
    "attend_narrow_group_of_3": attention_case("narrow", 64, group=3, float_="fp16"),
    "attend_odd_head_and_page": attention_case("wide", 80, page_size=48),
    "attend_many_queries": attention_case("narrow", 64, group=71),
    "merge": merge_case,
    # Packed products are compiled as they are launched, in test_launched_resources.py.
    **{f"linear_dense_{size}": linear_case(size) for size in ("small", "medium", "large")},
    "rms_norm": norm_case,
    "rotate_and_write": rotary_case(False),
    "rotate_and_write_interleaved": rotary_case(True),
    "silu_mul": activation_case,
    "sampling_adjust": adjust_case,
    "sampling_choose": choose_case,
}


@pytest.fixture(autouse=True)
def _cache(monkeypatch):
    cache = Path(tempfile.gettempdir()) / f"ramet-triton-{triton.__version__}"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))


KERNEL_MODULES = (activation, linear, norm, paged_attention, rotary, sampling_gpu)


def test_no_kernel_is_left_out():
    """What is launched, and isn't part of another kernel."""
    kernels = {
        (module.__name__, name): value
        for module in KERNEL_MODULES
        for name, value in vars(module).items()
        if isinstance(value, triton.runtime.JITFunction) and value.module == module.__name__
    }
    named = {name for kernel in kernels.values() for name in kernel.fn.__code__.co_names}
    launched = {key for key in kernels if key[1] not in named}
    compiled = {
        (kernel.module, kernel.__name__) for kernel, _, _ in (c("sm_80") for c in CASES.values())
    }
    assert compiled == launched
    everywhere = [
        path.stem
        for path in Path(linear.__file__).parents[1].rglob("*.py")
        if "@triton.jit" in path.read_text()
    ]
    assert sorted(everywhere) == sorted(m.__name__.rpartition(".")[2] for m in KERNEL_MODULES)


# GPUs without tuned constants take the default ones, which have to fit the smallest.
WITH_DEFAULTS = [case for case in CASES if case.startswith("attend_wide")]


@pytest.mark.parametrize(
    ("case", "arch"),
    [(case, arch) for case in CASES for arch in ARCHITECTURES]
    + [(case, "sm_86") for case in WITH_DEFAULTS],
)
def test_kernel_compiles_within_the_device(case, arch):
    kernel, types, constants = CASES[case](arch)
    used = compile_ahead(kernel, arch, types, constants)
    assert used.spilled_bytes == 0, used
    assert used.shared_bytes <= SHARED_MEMORY_LIMITS[arch], used
    assert used.registers > 0
