"""Requests that share prefixes: computed once, whoever comes when."""

from __future__ import annotations

import threading

import pytest

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.testing.scripted_model import Script

TEN = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)


def requests_with_shared_prefix(count, shared_len, tail_len=20, **kwargs):
    shared = [65 + i % 26 for i in range(shared_len)]
    return [
        Request(
            prompt_token_ids=(*shared, *(97 + (7 * i + j) % 26 for j in range(tail_len))),
            params=TEN,
            **kwargs,
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("shared_len", [512, 505, 1700])
@pytest.mark.parametrize("budget", [64, 512])
def test_eight_that_arrive_together_compute_their_prefix_once(make_engine, shared_len, budget):
    from ramet.runtime.engine import EngineConfig

    config = EngineConfig(max_tokens_per_step=budget)
    engine = make_engine(config=config, step_delay_s=0.001)
    streams = [engine.submit(each) for each in requests_with_shared_prefix(8, shared_len)]
    results = [stream.result(timeout=60) for stream in streams]
    cached = sorted(result.usage.cached_tokens for result in results)
    assert cached[0] == 0
    assert all(count >= shared_len for count in cached[1:])
    distinct = shared_len + 8 * 20 + 8 * 9
    assert engine.stats().num_computed_tokens <= distinct


def test_requests_from_many_threads_share_too(make_engine):
    engine = make_engine(step_delay_s=0.002)
    results = []

    def call(request):
        results.append(engine.submit(request).result(timeout=60))

    threads = [
        threading.Thread(target=call, args=(each,)) for each in requests_with_shared_prefix(8, 512)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(result.usage.cached_tokens >= 512 for result in results) >= 7


def test_salts_share_nothing(make_engine):
    engine = make_engine()
    first, second = (requests_with_shared_prefix(1, 100, cache_salt=salt)[0] for salt in ("a", "b"))
    assert engine.submit(first).result(10).usage.cached_tokens == 0
    assert engine.submit(second).result(10).usage.cached_tokens == 0
    again = requests_with_shared_prefix(1, 100, cache_salt="a")[0]
    assert engine.submit(again).result(10).usage.cached_tokens == 119


def test_the_one_who_waits_goes_on_when_the_first_is_aborted(make_engine):
    from ramet.runtime.engine import EngineConfig

    engine = make_engine(config=EngineConfig(max_tokens_per_step=64), step_delay_s=0.005)
    first, second = (engine.submit(each) for each in requests_with_shared_prefix(2, 2000))
    while not engine.stats().num_steps:
        pass
    first.abort()
    result = second.result(timeout=30)
    assert len(result.token_ids) == 10
    assert 0 < result.usage.cached_tokens < 2000


def test_a_long_prompt_delays_others_by_one_chunk_at_most(make_engine):
    from ramet.runtime.engine import EngineConfig

    config = EngineConfig(max_tokens_per_step=64)
    engine = make_engine([Script(["x"], repeat=True)], config=config, max_context_len=8192)
    params = SamplingParams(temperature=0, max_tokens=150, ignore_eos=True)
    short = engine.submit(Request(prompt_token_ids=(65, 66), params=params))
    next(short)
    before = engine.stats().num_steps
    long = engine.submit(Request(prompt_token_ids=(67,) * 6000, params=TEN))
    short.result(timeout=60)
    # A token a step, though the long prompt takes a hundred of them.
    assert engine.stats().num_steps - before <= 155
    long.result(timeout=60)


def test_preempted_requests_end_with_the_same_text(make_engine, tokenizer):
    engine = make_engine(num_pages=24, page_size=4)
    params = SamplingParams(temperature=0, max_tokens=50, ignore_eos=True)
    prompts = [tokenizer.encode(text) for text in ("abc", "hello there", "zzz", "12345")]
    streams = [
        engine.submit(Request(prompt_token_ids=tuple(prompt), params=params)) for prompt in prompts
    ]
    for prompt, stream in zip(prompts, streams, strict=True):
        expected = engine._runner.continuation(prompt, 50)
        assert stream.result(timeout=60).token_ids == expected
    assert engine.stats().num_preemptions > 0
