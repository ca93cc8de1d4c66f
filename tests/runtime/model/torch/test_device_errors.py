"""A lost context of a GPU ends the engine; any other fault ends a request; too little memory is a
typed error. A device that has failed is one whose synchronisation raises, as CUDA's does."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
import torch

from ramet.runtime.api.errors import EngineDeadError, ModelLoadError, RametError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.torch import runner as torch_runner
from ramet.runtime.model.torch.device_errors import refuse_too_large_model
from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner
from ramet.runtime.model.torch.weights import random_torch_weights
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered\nSee the documentation"
OPTIONS = TorchOptions(device="cpu", dtype=torch.float32, page_size=4, num_pages=64)
SHORT = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
POISON = 66


class FaultyDevice:
    """Fails the pass that reads ``POISON``, and, if that is sticky, whatever comes later."""

    def __init__(self, runner, *, sticky):
        self._forward = runner._decoder.forward
        self._sticky = sticky
        self._lost = False
        self.num_passes_when_lost = 0
        runner._decoder.forward = self.forward
        runner._synchronize = self.synchronize

    def synchronize(self):
        if self._lost:
            raise torch.AcceleratorError(ILLEGAL_ACCESS)

    def forward(self, inputs, *workspace):
        self.num_passes_when_lost += self._lost
        self.synchronize()
        if POISON in inputs.token_ids.tolist():
            self._lost = self._sticky
            raise torch.AcceleratorError(ILLEGAL_ACCESS)
        return self._forward(inputs, *workspace)


@pytest.fixture
def make_engine(model_files):
    engines = []

    def make(*, sticky):
        config = dataclasses.replace(ModelConfig.from_gguf(model_files["llama"]), vocab_size=300)
        weights = random_torch_weights(config, device="cpu", dtype=torch.float32, format="q8")
        runner = TorchRunner(config, weights, OPTIONS)
        engine = Engine(runner, scripted_tokenizer())
        engines.append(engine)
        return engine, FaultyDevice(runner, sticky=sticky)

    yield make
    for engine in engines:
        engine.close()


def submit_both(engine):
    rows = [(70, 71, 72), (70, POISON)]
    return [engine.submit(Request(prompt_token_ids=row, params=SHORT)) for row in rows]


def test_a_lost_context_ends_the_engine_and_no_row_is_tried_again(make_engine):
    engine, device = make_engine(sticky=True)
    good, bad = submit_both(engine)
    with pytest.raises(EngineDeadError, match="context is lost: CUDA error: an illegal memory"):
        bad.result(timeout=20)
    with contextlib.suppress(EngineDeadError):  # it may have ended before the other came
        good.result(timeout=20)
    assert isinstance(engine.error, EngineDeadError)
    assert device.num_passes_when_lost == 0
    with pytest.raises(EngineDeadError):
        engine.submit(Request(prompt_token_ids=(70,), params=SHORT))


def test_a_fault_that_leaves_the_context_ends_its_request_alone(make_engine):
    engine, _ = make_engine(sticky=False)
    good, bad = submit_both(engine)
    assert len(good.result(timeout=20).token_ids) == 3
    with pytest.raises(RametError) as caught:
        bad.result(timeout=20)
    assert not isinstance(caught.value, EngineDeadError)
    assert engine.error is None


def accelerator_error(code):
    error = torch.AcceleratorError("CUDA error")
    error.error_code = code
    return error


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory"), accelerator_error(2)]
)
def test_too_little_memory_at_load_is_named(model_files, monkeypatch, error):
    def allocate(*_args, **_kwargs):
        raise error

    monkeypatch.setattr(torch_runner, "load_torch_weights", allocate)
    options = dataclasses.replace(OPTIONS, kv_bytes=5 << 20)
    with pytest.raises(ModelLoadError, match=r"not enough memory .* cache of 5 MiB") as caught:
        TorchRunner.load(model_files["llama"], options)
    assert caught.value.param == "cache_bytes"


def test_memory_that_pages_lack_is_named_and_weights_are_freed():
    class Weights:
        alive = True

        def __del__(self):
            Weights.alive = False

    def load():
        weights = Weights()
        raise torch.OutOfMemoryError(f"no room for pages after {type(weights).__name__}")

    with (
        pytest.raises(ModelLoadError, match="not enough memory"),
        refuse_too_large_model(torch.device("cpu"), 1 << 20),
    ):
        load()
    assert not Weights.alive


def test_other_errors_of_a_device_pass_through_a_load():
    error = accelerator_error(700)
    with (
        pytest.raises(torch.AcceleratorError) as caught,
        refuse_too_large_model(torch.device("cpu"), 1 << 20),
    ):
        raise error
    assert caught.value is error
