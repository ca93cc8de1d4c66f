"""An engine on the scripted model, its tokens chosen by the float64 reference sampler."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from ramet.kernels.sampling.reference import sample_reference
from ramet.runtime.api.batch import Float32Array, SamplingRows, StepResult
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


class ReferenceSampler:
    """The sampling contract by its definition."""

    def sample(self, logits: Float32Array, rows: SamplingRows) -> StepResult:
        arrays = {field.name: getattr(rows, field.name) for field in dataclasses.fields(rows)}
        targets = arrays.pop("targets")
        result = sample_reference(logits, **arrays)
        token_ids, logprobs = result.token_ids.copy(), result.logprobs.copy()
        for row in np.flatnonzero(targets >= 0):
            x = logits[row].astype(np.float64)
            x -= x.max()
            token_ids[row] = targets[row]
            logprobs[row] = x[targets[row]] - np.log(np.exp(x).sum())
        return StepResult(token_ids, logprobs, result.top_token_ids, result.top_logprobs)


@pytest.fixture(scope="session")
def tokenizer():
    return scripted_tokenizer()


@pytest.fixture
def reference_sampler() -> ReferenceSampler:
    return ReferenceSampler()


MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine(tokenizer) -> Iterator[MakeEngine]:
    """Makes engines that are closed, and checked, in the end."""
    engines: list[Engine] = []

    def make(scripts=(), config: EngineConfig | None = None, **runner_args) -> Engine:
        runner = ScriptedModel(tokenizer, scripts, **runner_args)
        engine = Engine(runner, tokenizer, config, sampler=ReferenceSampler())
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        if engine.error is None:
            engine.check()
        engine.close()
