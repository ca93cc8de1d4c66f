"""The CPU runner computes what the plain forward pass computes, whatever the model's variant."""

from __future__ import annotations

import numpy as np
import pytest

from ramet.runtime.api.errors import InvalidParameterError, UnsupportedModelError
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.model.cpu.weights import packed_weights
from ramet.runtime.model.memory_needs import memory_needs
from ramet.runtime.model.storage import Storage
from ramet.runtime.testing.reference_model import ReferenceModel

GEMMA3 = {
    "architecture": "gemma3",
    "weight_types": ("Q8_0", "Q5_0"),
    "num_layers": 4,
    "num_kv_heads": 1,
    "head_dim": 256,
    "window": 20,
    "rope_scale": 4.0,
}
VARIANTS = {
    "llama": {},
    "untied head": {"tied": False},
    "multi-query, head of 64": {"num_heads": 3, "num_kv_heads": 1, "head_dim": 64},
    "no grouping, head of 80": {"num_heads": 2, "num_kv_heads": 2, "head_dim": 80},
    "many heads a key head": {"num_heads": 7, "num_kv_heads": 1},
    "qwen2": {"architecture": "qwen2", "bias": True, "tied": False},
    "qwen3": {"architecture": "qwen3", "head_dim": 128, "num_kv_heads": 1},
    "gemma3": GEMMA3,
    "gemma3, all layers local": {**GEMMA3, "num_layers": 1, "window": 1},
    "stored as floats": {"weight_types": ("F32", "F16")},
    "four bits": {"weight_types": ("Q4_0", "Q4_1")},
    "five bits": {"weight_types": ("Q5_0", "Q5_1")},
}


def kl_divergence(expected, actual):
    """Mean divergence of the distributions that two logit arrays stand for, in nats."""
    p, q = (x.astype(np.float64) - x.max(-1, keepdims=True) for x in (expected, actual))
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (p, q))
    return float((np.exp(p) * (p - q)).sum(-1).mean())


@pytest.fixture
def tokens():
    return np.random.default_rng(3).integers(0, 250, 75).tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_equal_the_reference(variant, model_factory, batch_of, tokens):
    file = model_factory(**VARIANTS[variant])
    expected = ReferenceModel(file).logits(tokens)
    batch = batch_of([(tokens, 0, range(5))], all_logits=True)

    exact = CpuRunner(file, num_pages=5, num_threads=2, activations="float32")
    logits = exact.logits(batch)
    # What is left is that keys and values are kept in bfloat16.
    assert np.abs(logits - expected).max() < 0.02 * np.abs(expected).max()
    assert kl_divergence(expected, logits) < 1e-4
    exact.close()

    int8 = CpuRunner(file, num_pages=5, num_threads=2)
    assert kl_divergence(expected, int8.logits(batch)) < 2e-3
    int8.close()


def test_only_wanted_logits_come_back(model_factory, batch_of, tokens):
    runner = CpuRunner(model_factory(), num_pages=10, num_threads=1)
    rows = [(tokens[:20], 0, [0, 1]), (tokens[:7], 0, [2])]
    every = runner.logits(batch_of(rows, all_logits=True)).copy()
    batch = batch_of(rows)
    batch.logit_tokens = np.array([3, 19, 26], np.int32)
    np.testing.assert_array_equal(runner.logits(batch), every[[3, 19, 26]])
    batch.logit_tokens = np.zeros(0, np.int32)
    assert runner.logits(batch).shape == (0, 250)
    runner.close()


def test_pages_are_copied_before_anything_else(model_factory, batch_of, tokens):
    runner = CpuRunner(model_factory(), num_pages=8, num_threads=1)
    expected = runner.logits(batch_of([(tokens[:31], 0, [0, 1])])).copy()
    runner.logits(batch_of([(tokens[:30], 0, [2, 3])]))
    # The copy goes on from the 30 tokens while their own row overwrites nothing of it.
    rows = [(tokens[40:42], 30, [2, 3]), (tokens[30:31], 30, [2, 5])]
    both = runner.logits(batch_of(rows, copies=[(3, 5, 14)]))
    np.testing.assert_array_equal(both[1], expected[0])
    runner.close()


def test_what_the_kernels_cannot_take_is_refused(model_factory, batch_of):
    with pytest.raises(UnsupportedModelError, match="head size that is a multiple of 16"):
        CpuRunner(model_factory(head_dim=24), num_pages=4)
    with pytest.raises(InvalidParameterError, match="page_size"):
        CpuRunner(model_factory(), page_size=24)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"token_ids": np.array([250], np.int32)}, "token ids"),
        ({"token_ids": np.array([-1], np.int32)}, "token ids"),
        ({"positions": np.array([3], np.int32)}, "positions"),
        ({"page_tables": np.array([[4]], np.int32)}, "page ids"),
        ({"page_tables": np.array([[-1]], np.int32)}, "page ids"),
        ({"page_tables": np.zeros((1, 0), np.int32)}, "narrower"),
        ({"logit_tokens": np.array([1], np.int32)}, "logit_tokens"),
        ({"page_copies": np.array([[0, 9, 1]], np.int32)}, "page ids"),
        ({"row_starts": np.array([0, 0], np.int32)}, "row_starts"),
    ],
)
def test_a_batch_that_points_outside_is_refused(change, message, model_factory, batch_of):
    runner = CpuRunner(model_factory(), num_pages=4, num_threads=1)
    batch = batch_of([([5], 0, [0])])
    for name, value in change.items():
        setattr(batch, name, value)
    with pytest.raises(ValueError, match=message):
        runner.logits(batch)
    runner.logits(batch_of([([5], 0, [0])]))  # and the next step works
    runner.close()


def test_closing_twice_is_fine_and_running_after_it_is_not(model_factory, batch_of):
    runner = CpuRunner(model_factory(), num_pages=4, num_threads=2)
    runner.logits(batch_of([([5], 0, [0])]))
    runner.close()
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.logits(batch_of([([5], 0, [0])]))


@pytest.mark.parametrize("variant", ["llama", "no grouping, head of 80", "gemma3"])
def test_keys_and_values_in_int8_take_half_of_the_memory(variant, model_factory, batch_of, tokens):
    file = model_factory(**VARIANTS[variant])
    expected = ReferenceModel(file, kv_dtype="int8").logits(tokens)
    runner = CpuRunner(file, num_pages=5, num_threads=2, activations="float32", kv_dtype="int8")
    logits = runner.logits(batch_of([(tokens, 0, range(5))], all_logits=True))
    assert np.abs(logits - expected).max() < 0.02 * np.abs(expected).max()
    assert kl_divergence(expected, logits) < 1e-4
    config, page = runner.config, runner.read_page(3)
    values = 2 * config.num_layers * config.num_kv_heads * config.head_dim * 16
    assert len(page) == values * (config.head_dim + 4) / config.head_dim
    runner.write_page(4, page)
    assert runner.read_page(4) == page
    runner.close()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_weights_stored_as_floats_stay_as_they_are(kind, model_factory, batch_of, tokens):
    file = model_factory(weight_types=(kind, "Q8_0"), tied=False)
    runner = CpuRunner(file, num_pages=5, num_threads=2, quantise="none")
    forms = {weight.form.name for weight in packed_weights(runner._weights)}
    assert forms == {kind.lower(), "u8"}
    logits = runner.logits(batch_of([(tokens, 0, range(5))], all_logits=True))
    expected = ReferenceModel(file, kv_dtype="bf16").logits(tokens)
    assert kl_divergence(expected, logits) < 1e-3
    assert "weights as stored" in runner.description
    runner.close()


def test_weights_stored_as_floats_become_4_bits(model_factory, batch_of, tokens):
    file = model_factory(weight_types=("F16",), tied=False)
    runner = CpuRunner(file, num_pages=5, num_threads=2, quantise="int4")
    weights = runner._weights
    assert weights.embedding.form.bits == weights.head.weight.form.bits == 8
    assert {weight.form.bits for weight in packed_weights(weights.layers)} == {4}
    needs = memory_needs(file, page_size=16, on_gpu=False, storage=Storage(quantise="int4"))
    packed = sum(weight.data.nbytes for weight in packed_weights(weights))
    assert packed <= needs.weight_bytes < 1.2 * packed
    logits = runner.logits(batch_of([(tokens, 0, range(5))], all_logits=True))
    expected = ReferenceModel(file, kv_dtype="bf16").logits(tokens)
    assert 1e-3 < kl_divergence(expected, logits) < 0.2
    assert "weights to 4 bits" in runner.description
    runner.close()
