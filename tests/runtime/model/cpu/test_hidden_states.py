"""What the head reads, shown by the CPU runner; and the vectors that become of it."""

from __future__ import annotations

import numpy as np
import pytest

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.cpu.runner import CpuRunner
from ramet.runtime.testing.reference_model import ReferenceModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

VARIANTS = [
    {},
    {"architecture": "qwen3", "head_dim": 128, "num_kv_heads": 1},
    {"architecture": "gemma3", "num_layers": 3, "window": 9},
    {"tied": False},
]


@pytest.fixture
def tokens():
    return np.random.default_rng(5).integers(0, 250, 60).tolist()


@pytest.mark.parametrize("variant", VARIANTS)
def test_states_equal_the_reference(variant, model_factory, batch_of, tokens):
    file = model_factory(**variant)
    expected = ReferenceModel(file).hidden_states(tokens)
    runner = CpuRunner(file, num_pages=4, num_threads=2, activations="float32")
    batch = batch_of([(tokens, 0, range(4))])
    batch.hidden_tokens = np.arange(60, dtype=np.int32)
    logits = runner.logits(batch).copy()
    states = runner.run(batch).hidden_states
    # What is left is that keys and values are kept in bfloat16.
    assert np.abs(states - expected).max() < 0.02 * np.abs(expected).max()
    batch.hidden_tokens = np.array([3, 59], np.int32)
    np.testing.assert_array_equal(runner.logits(batch), logits)
    np.testing.assert_array_equal(runner.run(batch).hidden_states, states[[3, 59]])
    batch.hidden_tokens = np.empty(0, np.int32)
    assert runner.run(batch).hidden_states is None
    runner.close()


def test_tokens_that_are_not_in_the_step_are_refused(model_factory, batch_of, tokens):
    runner = CpuRunner(model_factory(), num_pages=4, num_threads=1)
    batch = batch_of([(tokens, 0, range(4))])
    batch.hidden_tokens = np.array([60], np.int32)
    with pytest.raises(ValueError, match="hidden_tokens"):
        runner.logits(batch)
    runner.close()


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_vector_is_the_same_bits_alone_and_in_any_company(model_factory, pooling):
    tokenizer = scripted_tokenizer()
    random = np.random.default_rng(7)
    shared = random.integers(0, 250, 33).tolist()
    prompts = [(*shared, *random.integers(0, 250, n).tolist()) for n in (1, 20, 47, 5)]
    chat = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)

    def vectors(together: bool, **config):
        runner = CpuRunner(model_factory(vocab_size=300), num_pages=64, num_threads=2)
        with Engine(runner, tokenizer, EngineConfig(**config)) as engine:
            if together:
                others = [engine.submit(Request(prompt_token_ids=p, params=chat)) for p in prompts]
            streams = []
            for prompt in prompts:
                streams.append(engine.submit(Request(prompt_token_ids=prompt, pooling=pooling)))
                if not together:
                    streams[-1].result(60)
            found = [stream.result(60).embedding for stream in streams]
            if together:
                for other in others:
                    other.result(60)
            engine.check()
        return np.stack(found)

    alone = vectors(False)
    np.testing.assert_array_equal(vectors(True), alone)
    tight = {"max_tokens_per_step": 9, "max_logits_per_step": 9, "max_num_seqs": 3}
    np.testing.assert_array_equal(vectors(True, **tight), alone)
    assert np.abs(alone[0] - alone[1]).max() > 1e-3
