"""The GPU benchmarks' own code runs, on small shapes and a CPU: only the timer needs a GPU."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from ramet.kernels.sampling.reference import sample_reference
from ramet.kernels.sampling.rows import SamplingRows

FOLDER = Path(__file__).parents[2] / "benchmarks" / "kernels"


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def gpu():
    return load("gpu")


def once(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@pytest.fixture(scope="module")
def bench(gpu):
    sizes = gpu.Sizes(
        copy_bytes=1 << 16,
        matmul=32,
        hidden=64,
        ffn=96,
        layers=1,
        heads=4,
        kv_heads=2,
        head_dim=16,
        vocab=100,
        rows=3,
        context=40,
        shared=64,
        own=20,
        mask_rows=3,
        decode_rows=(1, 2),
    )
    return gpu.Bench.of(torch.device("cpu"), torch.float32, sizes, once)


@pytest.mark.parametrize("section", ["masks", "attention", "linear", "model"])
def test_a_section_gives_figures(gpu, bench, section, monkeypatch):
    monkeypatch.setattr(gpu, "sample_gpu", sample_on_cpu)
    figures = gpu.SECTIONS[section](bench)
    assert figures
    assert all(figure.ratio > 0 for figure in figures)


def sample_on_cpu(logits, rows, *, num_top):
    """``sample_gpu`` by the reference, for it has no CPU path."""
    assert num_top == 0
    arrays = {name: each.numpy() for name, each in rows.items()}
    arrays["seeds"] = arrays["seeds"].view(np.uint64)
    result = sample_reference(logits.numpy(), SamplingRows(**arrays))
    assert (result.token_ids >= 0).all()
    return result


def test_the_fit_gives_coefficients(gpu, bench):
    costs = gpu.fit(bench)
    assert costs.per_byte > 0
    assert costs.per_flop > 0
    assert costs.per_item >= 0


def test_without_a_gpu_it_says_so(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu.py"])
    with pytest.raises(SystemExit, match="needs a GPU"):
        gpu.main()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx942"])
def test_planned_steps_move_fewer_bytes_than_plain_ones(arch):
    steps = load("attention_plan")
    for name, levels in steps.STEPS.items():
        planned, ideal = steps.savings(levels, arch)
        assert 1 <= planned <= ideal
        if "nothing" in name:
            assert planned == 1
        elif "a page" not in name:
            assert planned > 0.25 * ideal
            assert planned > 3
