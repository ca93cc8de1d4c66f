"""The GPU benchmark's own code runs, on small shapes and a CPU: only its timer needs the GPU."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture(scope="module")
def gpu():
    spec = importlib.util.spec_from_file_location("gpu_benchmark", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


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
def test_a_section_gives_figures(gpu, bench, section):
    figures = gpu.SECTIONS[section](bench)
    assert figures
    assert all(figure.ratio > 0 for figure in figures)


def test_the_fit_gives_coefficients(gpu, bench):
    costs = gpu.fit(bench)
    assert costs.per_byte > 0
    assert costs.per_flop > 0
    assert costs.per_item >= 0


def test_without_a_gpu_it_says_so():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    run = subprocess.run([sys.executable, str(PATH)], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "needs a GPU" in run.stderr
