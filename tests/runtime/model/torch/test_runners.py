"""A device's name picks the runner, and a wrong one is refused."""

from __future__ import annotations

import pytest
import torch

from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model import runners
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.runners import load_runner

KV_BYTES = 1 << 20


@pytest.mark.parametrize("device", ["cpu", "auto"])
def test_without_a_gpu_the_compiled_runner_runs(model_files, monkeypatch, device):
    monkeypatch.setattr(runners, "_has_gpu", lambda: False)
    runner = load_runner(model_files["llama"], device=device, num_pages=3, kv_bytes=KV_BYTES)
    assert isinstance(runner, CpuRunner)
    assert runner.num_pages == 3
    runner.close()


@pytest.mark.parametrize("device", ["tpu", "cuda:x", "gpu", ""])
def test_an_unknown_device_is_refused_by_name(model_files, device):
    with pytest.raises(ModelLoadError, match=f"device {device!r} is not known") as caught:
        load_runner(model_files["llama"], device=device, kv_bytes=KV_BYTES)
    assert caught.value.param == "device"


@pytest.mark.parametrize("device", ["cuda", "cuda:7"])
def test_a_gpu_that_is_not_there_is_refused(model_files, device):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ModelLoadError, match=f"no device {device}"):
        load_runner(model_files["llama"], device=device, kv_bytes=KV_BYTES)


def test_what_models_run_on_is_reported(monkeypatch):
    monkeypatch.setattr(runners, "_has_gpu", lambda: False)
    assert runners.describe_default() == "the CPU, by compiled kernels"
    monkeypatch.setattr(runners, "_has_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some GPU")
    monkeypatch.setattr("ramet.kernels.triton_support.dispatch.architecture", lambda _: "sm_90")
    assert runners.describe_default() == "Some GPU (sm_90), by Triton kernels"
