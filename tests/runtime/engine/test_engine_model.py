"""The engine on the bundled model: outputs don't depend on company, cache, chunks or preemption."""

from __future__ import annotations

import time

import pytest

from ramet.grammars import JsonSchema
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.model.files.locate import locate_model

SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string", "maxLength": 24}, "pages": {"type": "integer"}},
    "required": ["title", "pages"],
    "additionalProperties": False,
}
TOPICS = ("rivers", "bread", "the moon", "chess", "rust", "bees", "paper", "snow")


def model_or_skip() -> None:
    try:
        locate_model("smollm2")
    except ModelLoadError:
        pytest.skip("the bundled model is not installed")


def requests(engine: Engine) -> list[Request]:
    """Greedy and seeded requests with a long shared beginning, and some without."""
    shared = "You are a careful writer. " + "Keep every answer short and to the point. " * 8
    texts = [f"{shared}Write about {topic}." for topic in TOPICS]
    texts += [f"Tell me of {topic}" for topic in TOPICS[:4]]
    made = []
    for number, text in enumerate(texts):
        params = SamplingParams(
            temperature=0 if number % 2 else 0.9,
            seed=number,
            max_tokens=24,
            ignore_eos=True,
            repetition_penalty=1.0 if number % 3 else 1.2,
        )
        made.append(
            Request(
                prompt_token_ids=tuple(engine.tokenizer.encode(text)),
                params=params,
                constraint=JsonSchema(SCHEMA, any_order=False) if number % 5 == 4 else None,
            )
        )
    return made


def company(engine: Engine, count: int) -> list[Request]:
    """Other requests, each of its own kind; they go first where there is no room for all."""
    return [
        Request(
            prompt_token_ids=tuple(engine.tokenizer.encode(f"Number {i} is " * (1 + i % 13))),
            params=SamplingParams(temperature=1.0, seed=i, max_tokens=10 + i % 30, ignore_eos=True),
            priority=1,
        )
        for i in range(count)
    ]


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """Each request's tokens, run alone with an empty cache."""
    model_or_skip()
    outputs = []
    config = EngineConfig(cache_bytes=64 << 20, max_draft_len=0)
    with Engine.from_model("smollm2", config) as engine:
        for request in requests(engine):
            engine.clear_cache()
            outputs.append(engine.submit(request).result(timeout=120).token_ids)
    return outputs


@pytest.mark.model
@pytest.mark.parametrize(
    ("config", "num_others"),
    [
        (EngineConfig(cache_bytes=64 << 20), 0),
        (EngineConfig(cache_bytes=64 << 20), 52),  # sixty-four in all
        (EngineConfig(cache_bytes=64 << 20, max_tokens_per_step=48, max_num_seqs=5), 0),
        (EngineConfig(cache_bytes=64 << 20, max_draft_len=16), 0),
        (EngineConfig(num_pages=20, max_tokens_per_step=100, policy="shortest-remaining"), 12),
    ],
    ids=["together", "sixty-four", "small-chunks", "guessing", "few-pages"],
)
def test_tokens_are_those_of_a_run_alone(alone, config, num_others):
    with Engine.from_model("smollm2", config) as engine:
        for _ in range(2):  # the second time with a warm cache
            streams = [engine.submit(request) for request in requests(engine)]
            while not engine.stats().num_running:
                time.sleep(0.001)
            others = [engine.submit(request) for request in company(engine, num_others)]
            together = [stream.result(timeout=120).token_ids for stream in streams]
            assert together == alone
            for stream in others:
                stream.result(timeout=120)
        engine.check()
        if config.num_pages is not None:
            assert engine.stats().num_preemptions > 0


@pytest.mark.model
def test_scores_are_the_same_with_a_warm_cache():
    model_or_skip()
    with Engine.from_model("smollm2", EngineConfig(cache_bytes=64 << 20)) as engine:
        ids = tuple(engine.tokenizer.encode("The capital of France is Paris, of Spain Madrid."))
        params = SamplingParams(max_tokens=0, prompt_logprobs=1)
        whole = engine.submit(Request(prompt_token_ids=ids, params=params)).result(60)
        part = engine.submit(Request(prompt_token_ids=ids, params=params, score_from=5)).result(60)
        assert part.prompt_logprobs.tokens == whole.prompt_logprobs.tokens[5:]
        assert part.usage.cached_tokens == 4
        again = engine.submit(Request(prompt_token_ids=ids, params=params)).result(60)
        assert again.prompt_logprobs == whole.prompt_logprobs
