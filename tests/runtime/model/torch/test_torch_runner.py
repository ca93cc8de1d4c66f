"""The torch runner gives the plain forward pass's logits, however a text is cut and shared.

With ``TRITON_INTERPRET=1`` the same tests run the Triton kernels, in their interpreter; where there
is a GPU they run them there, with captured graphs.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.kernels.attention.costs import AttentionCosts
from ramet.kernels.triton_support.dispatch import interpreting
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.config import ModelConfig
from ramet.runtime.model.sampler import Sampler
from ramet.runtime.model.torch.device_arrays import pack, unpack
from ramet.runtime.model.torch.graphs import StepGraphs
from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner, sample_on_device
from ramet.runtime.model.torch.step import step_inputs
from ramet.runtime.model.torch.weights import load_torch_weights, random_torch_weights
from ramet.runtime.testing.reference_model import ReferenceModel

INTERPRETED = interpreting()
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
ON_TRITON = INTERPRETED or DEVICE == "cuda"
# Logits have a spread of about 1.
TOLERANCE = 6e-2 if ON_TRITON else 2e-5
OPTIONS = TorchOptions(
    device=DEVICE,
    dtype=torch.bfloat16 if ON_TRITON else torch.float32,
    packed_weights=ON_TRITON,
    page_size=4,
    num_pages=128,
)
ARCHITECTURES = ("llama", "qwen2", "qwen3")
# A small device, so that a captured step has few surplus items.
COSTS = AttentionCosts(per_byte=1e-12, per_flop=1e-14, per_item=1e-8, num_programs=8)
# The interpreter warns of the logarithm of an empty sum, and of what padding rows hold.
pytestmark = [
    pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning"),
]


@pytest.fixture(scope="module")
def references(model_files):
    return {name: ReferenceModel(file) for name, file in model_files.items()}


def load(model_files, name="llama", **changes):
    return TorchRunner.load(model_files[name], dataclasses.replace(OPTIONS, **changes))


def texts_with_shared_prefixes():
    token = st.integers(0, 89)
    text = st.lists(token, min_size=1, max_size=30)
    parts = st.tuples(st.integers(0, 5), st.integers(0, 24), text)
    return st.lists(parts, min_size=1, max_size=5)


def build_texts(parts):
    texts = []
    for source, shared, own in parts:
        prefix = texts[source % len(texts)][:shared] if texts else []
        texts.append([*prefix, *own])
    return texts


@pytest.mark.parametrize("name", ARCHITECTURES)
@given(texts_with_shared_prefixes(), st.randoms(use_true_random=False))
@settings(
    max_examples=1 if INTERPRETED else 20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_any_schedule_gives_the_plain_logits(
    model_files, references, sequences, name, parts, random
):
    runner = load(model_files, name, grouping="always")
    pool = sequences(build_texts(parts))
    done = [0] * len(pool.texts)
    while any(end < len(text) for end, text in zip(done, pool.texts, strict=True)):
        rows = []
        for index, text in enumerate(pool.texts):
            if done[index] < len(text) and random.random() < 0.7:
                end = random.randint(done[index] + 1, len(text))
                rows.append((index, done[index], end))
                done[index] = end
        if not rows:
            continue
        logits = runner.logits(pool.batch(rows))
        assert logits.shape == (len(rows), runner.vocab_size)
        assert logits.dtype == np.float32
        ends = {index: end for index, _, end in rows}
        for row, index in enumerate(pool.order):
            expected = references[name].logits(pool.texts[index][: ends[index]])[-1]
            np.testing.assert_allclose(logits[row], expected, atol=TOLERANCE)


def test_a_shared_prefix_is_computed_once_and_read_by_all(model_files, references, sequences):
    prefix = list(range(12))
    pool = sequences([[*prefix, 40 + i] for i in range(4)])
    runner = load(model_files, grouping="always")
    runner.logits(pool.batch([(0, 0, 12)]))
    batch = pool.batch([(i, 12, 13) for i in range(4)])
    assert runner.plan(batch).num_keys_read == 12 + 4
    logits = runner.logits(batch)
    for row, index in enumerate(pool.order):
        expected = references["llama"].logits(pool.texts[index])[-1]
        np.testing.assert_allclose(logits[row], expected, atol=TOLERANCE)


def test_logits_of_every_token_are_given_when_wanted(model_files, references, sequences):
    pool = sequences([list(range(30, 41))])
    batch = pool.batch([(0, 0, 11)])
    batch.logit_tokens = np.array([0, 3, 10], np.int32)
    logits = load(model_files).logits(batch)
    expected = references["llama"].logits(pool.texts[0])[[0, 3, 10]]
    np.testing.assert_allclose(logits, expected, atol=TOLERANCE)


def test_pages_are_copied_in_order_before_all_else(model_files, references, sequences):
    text = list(range(10))
    runner = load(model_files)
    pool = sequences([text, text])
    runner.logits(pool.batch([(0, 0, 9)]))
    table = pool.table(0, 9)
    # Through a chain, onto a page that was itself a target: the last copy wins.
    copies = [(table[0], 100, 4), (table[2], 101, 4), (100, 101, 4), (table[2], 100, 4)]
    batch = pool.batch([(0, 9, 10)], copies=copies)
    batch.page_tables = np.array([[101, table[1], 100]], np.int32)
    expected = references["llama"].logits(text)[-1]
    np.testing.assert_allclose(runner.logits(batch)[0], expected, atol=TOLERANCE)
    # Copies that don't meet are done at once.
    batch = pool.batch([(0, 9, 10)], copies=[(101, 110, 4), (table[1], 111, 4)])
    batch.page_tables = np.array([[110, 111, 100]], np.int32)
    np.testing.assert_allclose(runner.logits(batch)[0], expected, atol=TOLERANCE)


def capture(function):
    """Stands in for a CUDA graph: each replay calls the function on the same buffers."""
    result = function()
    return lambda: result.copy_(function()), result


@pytest.mark.parametrize("num_rows", [1, 3, 5])
def test_a_replayed_decode_step_equals_a_plain_one(model_files, sequences, num_rows):
    """Buffers are padded, and hold nothing of the steps before."""
    runner, plain = (load(model_files, grouping="always") for _ in range(2))
    graphs = StepGraphs(runner._decoder, runner._shape, COSTS, 8, 40, capture=capture)
    prefix = list(range(16))
    pool = sequences([[*prefix, *range(20 + i, 34 + i)] for i in range(num_rows)])
    start = pool.batch([(i, 0 if i == 0 else 16, 20) for i in range(num_rows)])
    runner.logits(start)
    plain.logits(start)
    for step in range(4):
        rows = [(i, 20 + step, 21 + step) for i in range(num_rows - step % 2)]
        if not rows:
            continue
        batch = pool.batch(rows)
        with torch.inference_mode():
            logits = graphs.run(batch, runner.plan(batch))
        assert logits is not None
        np.testing.assert_allclose(logits.cpu().numpy(), plain.logits(batch), atol=TOLERANCE / 4)


def test_a_step_of_longer_rows_takes_a_graph_too(model_files, sequences):
    """Drafts that are verified, and the end of a prompt; logits of some tokens, or of all."""
    runner, plain = (load(model_files, grouping="always") for _ in range(2))
    graphs = StepGraphs(runner._decoder, runner._shape, COSTS, 16, 40, capture=capture)
    pool = sequences([[*range(12), *range(20 + i, 34 + i)] for i in range(3)])
    start = pool.batch([(i, 0 if i == 0 else 12, 15) for i in range(3)])
    runner.logits(start)
    plain.logits(start)
    batch = pool.batch([(0, 15, 19), (1, 15, 16), (2, 15, 22)])
    for wanted in (batch.logit_tokens, np.arange(12), np.array([0, 3, 11])):
        batch.logit_tokens = wanted.astype(np.int32)
        with torch.inference_mode():
            logits = graphs.run(batch, runner.plan(batch))
        assert logits is not None
        np.testing.assert_allclose(logits.cpu().numpy(), plain.logits(batch), atol=TOLERANCE / 4)


def test_steps_that_no_graph_holds_take_none(model_files, sequences):
    runner = load(model_files)
    graphs = StepGraphs(runner._decoder, runner._shape, COSTS, 2, 40, capture=capture)
    pool = sequences([list(range(i, i + 9)) for i in range(3)])
    prefill = pool.batch([(0, 0, 9)])
    too_many = pool.batch([(i, 0, 1) for i in range(3)])
    too_long = pool.batch([(0, 8, 9)])
    too_long.page_tables = np.pad(too_long.page_tables, ((0, 0), (0, 50)), constant_values=-1)
    for batch in (prefill, too_many, too_long):
        assert graphs.run(batch, runner.plan(batch)) is None


def test_tokens_are_sampled_from_the_logits(model_files, sequences):
    pool = sequences([[1, 2, 3], [4, 5, 6]])
    batch = pool.batch([(0, 0, 3), (1, 0, 3)])
    result = load(model_files).run(batch).sampled
    logits = load(model_files).logits(batch)
    assert result.token_ids.tolist() == logits.argmax(-1).tolist()
    assert result.top_token_ids.shape == (2, 2)


@pytest.mark.skipif(not ON_TRITON, reason="runs the Triton sampler")
@pytest.mark.parametrize("num_logprobs", [-1, 0, 3])
def test_sampling_on_the_device_equals_sampling_on_the_cpu(sampling_rows, num_logprobs):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(6, 90)).astype(np.float32) * 3
    rows = sampling_rows(
        6,
        temperature=np.array([0, 1, 1, 0.5, 2, 1], np.float32),
        top_k=np.array([0, 5, 0, 0, 0, 0], np.int32),
        top_p=np.array([1, 1, 0.5, 1, 1, 1], np.float32),
        mask_rows=np.array([-1, -1, 0, -1, -1, -1], np.int32),
        masks=np.full((1, 3), 0x0F0F0F0F, np.int32),
        num_logprobs=np.full(6, num_logprobs, np.int32),
    )
    ours = sample_on_device(torch.from_numpy(logits.copy()).to(DEVICE), rows)
    theirs = Sampler().sample(logits, rows)
    for name in ("token_ids", "logprobs", "top_token_ids", "top_logprobs"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_packed_weights_are_the_files_exactly(model_files, name):
    file = model_files[name]
    config = ModelConfig.from_gguf(file)
    weights = [
        load_torch_weights(file, config, device="cpu", dtype=torch.float32, packed=packed)
        for packed in (True, False)
    ]
    packed_size, dense_size = (w.num_bytes for w in weights)
    assert packed_size < dense_size
    for ours, theirs in zip(*(w.layers for w in weights), strict=True):
        for part in ("attention", "feed_forward"):
            projections = [getattr(layer, part).projections() for layer in (ours, theirs)]
            for pair in zip(*projections, strict=True):
                assert torch.equal(
                    *(torch.cat([weight.unpack() for weight in each.weights]) for each in pair)
                )


def test_a_batch_invariant_run_gives_the_same_bits_in_any_company(model_files, sequences):
    if not ON_TRITON:
        with pytest.raises(ValueError, match="needs a GPU"):
            load(model_files, batch_invariant=True)
        return
    prefix = list(range(8))
    pool = sequences([[*prefix, 40 + i, 50 + i] for i in range(2)])
    options = {"batch_invariant": True, "grouping": "always"}
    together = load(model_files, **options)
    together.logits(pool.batch([(0, 0, 8)]))
    logits = together.logits(pool.batch([(i, 8, 10) for i in range(2)]))
    alone = load(model_files, **options)
    last = pool.order[-1]
    alone.logits(pool.batch([(last, 0, 7)]))
    single = alone.logits(pool.batch([(last, 7, 10)]))
    assert np.array_equal(logits[-1], single[0])


def test_random_weights_run(model_files, sequences):
    config = ModelConfig.from_gguf(model_files["qwen3"])
    weights = random_torch_weights(config, device=DEVICE, dtype=OPTIONS.dtype, format="q8", seed=1)
    logits = TorchRunner(config, weights, OPTIONS).logits(sequences([[1, 2]]).batch([(0, 0, 2)]))
    assert np.isfinite(logits).all()
    assert 0.1 < logits.std() < 10


def test_a_device_that_is_not_there_is_refused(model_files):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ModelLoadError, match="no device cuda"):
        load(model_files, device="cuda")


def test_an_empty_step_gives_no_logits(model_files, sequences):
    runner = load(model_files)
    batch = sequences([[1]]).batch([(0, 0, 1)])
    none = np.zeros(0, np.int32)
    batch.token_ids = batch.positions = batch.context_lens = batch.logit_tokens = none
    batch.row_starts, batch.page_tables = np.zeros(1, np.int32), np.zeros((0, 1), np.int32)
    assert runner.logits(batch).shape == (0, runner.vocab_size)


def test_the_steps_inputs_name_each_keys_place(model_files, sequences):
    runner = load(model_files)
    pool = sequences([list(range(9))])
    batch = pool.batch([(0, 3, 9)])
    inputs = step_inputs(batch, runner.plan(batch), 4, torch.device("cpu"))
    pages = pool.table(0, 9)
    assert inputs.slots.tolist() == [pages[p // 4] * 4 + p % 4 for p in range(3, 9)]


def test_arrays_come_back_from_one_buffer():
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.integers(0, 9, (3, 5)).astype(np.int32),
        "none": np.zeros((0, 4), np.int32),
        "seeds": np.array([0, 2**64 - 1, 2**63], np.uint64),
        "strided": rng.normal(size=(4, 6)).astype(np.float32)[:, ::2],
        "one": np.array([7], np.int64),
    }
    for name, tensor in unpack(pack(arrays, pin_memory=False), arrays).items():
        assert tensor.shape == arrays[name].shape
        assert tensor.data_ptr() % 16 == 0
        assert np.array_equal(tensor.numpy().view(arrays[name].dtype), arrays[name])


def test_hidden_states_are_those_that_the_head_reads(model_files, references, sequences):
    texts = [list(range(30, 41)), list(range(50, 57))]
    pool = sequences(texts)
    runner = load(model_files)
    batch = pool.batch([(0, 0, 11), (1, 0, 7)])
    logits = runner.logits(batch).copy()
    batch.hidden_tokens = np.array([1, 4, 12, 17], np.int32)
    np.testing.assert_array_equal(runner.logits(batch), logits)
    states = runner.run(batch).hidden_states
    first, second = (references["llama"].hidden_states(texts[i]) for i in pool.order)
    both = np.concatenate([first, second])
    np.testing.assert_allclose(states, both[batch.hidden_tokens], atol=TOLERANCE)
