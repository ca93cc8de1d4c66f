"""How weights, keys and values are stored; what can't be is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from ramet.kernels.linear.cpu_quantise import to_4_bits
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.storage import Storage, choose_storage


@pytest.fixture(scope="module")
def floats(model_factory):
    return model_factory(weight_types=("F16",))


def test_what_a_runner_stores_by_default_and_by_name(floats):
    assert choose_storage(floats, on_gpu=False) == Storage(quantise="int8", kv_dtype="bf16")
    assert choose_storage(floats, on_gpu=True) == Storage(quantise="none", kv_dtype="bf16")
    named = choose_storage(floats, on_gpu=False, quantize="int4", kv_dtype="int8")
    assert named == Storage(quantise="int4", kv_dtype="int8")


@pytest.mark.parametrize(
    ("on_gpu", "kv_dtype", "stored"),
    [(False, "fp8", "bf16 or int8"), (True, "fp8", "bf16"), (True, "int8", "bf16")],
)
def test_a_type_of_keys_and_values_that_a_runner_lacks_is_refused(floats, on_gpu, kv_dtype, stored):
    with pytest.raises(ModelLoadError, match=rf"--kv-dtype {kv_dtype}: .* as {stored}$") as refused:
        choose_storage(floats, on_gpu=on_gpu, kv_dtype=kv_dtype)
    assert refused.value.param == "kv_dtype"


def test_nothing_to_quantise_is_refused(model_factory):
    stored = model_factory(weight_types=("Q8_0",))
    assert choose_storage(stored, on_gpu=False, quantize="none").quantise == "none"
    with pytest.raises(ModelLoadError, match=r"--quantize int4: .* they are Q8_0") as refused:
        choose_storage(stored, on_gpu=False, quantize="int4")
    assert refused.value.param == "quantize"


def test_an_engine_stores_as_it_is_configured(floats):
    with pytest.raises(ModelLoadError, match="--kv-dtype fp8"):
        Engine.from_model(floats.path, EngineConfig(kv_dtype="fp8", device="cpu"))


def test_4_bits_are_as_near_as_a_scale_and_a_minimum_allow():
    rng = np.random.default_rng(5)
    values = rng.normal(size=(24, 96)).astype(np.float32)
    values[3, 32:64] = 0.25  # a group of equal values
    words, scales, minimums = to_4_bits(values)
    packed = words.view(np.uint8)
    q = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)
    found = q * scales.astype(np.float32)[..., None] + minimums.astype(np.float32)[..., None]
    errors = np.square(found.reshape(values.shape) - values).reshape(24, 3, 32).sum(-1)
    groups = values.reshape(24, 3, 32)
    steps = (groups.max(-1) - groups.min(-1)) / 15
    uniform = np.rint((groups - groups.min(-1)[..., None]) / np.maximum(steps, 1e-9)[..., None])
    plain = uniform * steps[..., None] + groups.min(-1)[..., None]
    assert errors[3, 1] < 1e-6
    assert errors.sum() < 0.95 * np.square(plain - groups).sum()
