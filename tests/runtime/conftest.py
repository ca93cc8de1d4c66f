"""An engine on the scripted model, its tokens chosen by the float64 reference sampler."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ramet.kernels.sampling.reference import sample_reference
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return scripted_tokenizer()


MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine(tokenizer) -> Iterator[MakeEngine]:
    """Makes engines that are closed, and checked, in the end."""
    engines: list[Engine] = []

    def make(scripts=(), config: EngineConfig | None = None, **runner_args) -> Engine:
        runner = ScriptedModel(tokenizer, scripts, sample=sample_reference, **runner_args)
        engine = Engine(runner, tokenizer, config)
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        if engine.error is None:
            engine.check()
        engine.close()
