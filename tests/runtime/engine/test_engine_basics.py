"""One request at a time through the engine: what comes out, and when it ends."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import (
    ContextLengthError,
    EmptyPromptError,
    EngineDeadError,
    InvalidParameterError,
    RequestAbortedError,
)
from ramet.runtime.api.events import Failed, Finished, PromptLogprobs, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.testing.scripted_model import Script

GREEDY = SamplingParams(temperature=0, max_tokens=20)


def test_a_script_comes_out_and_ends_at_end_of_text(make_engine):
    engine = make_engine([Script(["Hello", " world"])])
    done = engine.generate("Say it", GREEDY)
    assert done.text == "Hello world"
    assert done.finish_reason == "stop"
    assert done.matched_stop is None
    assert done.usage.prompt_tokens == len(engine.tokenizer.encode("Say it"))
    assert done.usage.completion_tokens == len(done.tokens)
    assert done.timings.finished_s is not None


def test_max_tokens_ends_with_length(make_engine):
    engine = make_engine()
    done = engine.generate("abc", SamplingParams(temperature=0, max_tokens=7))
    assert done.finish_reason == "length"
    assert len(done.token_ids) == 7


def test_without_max_tokens_the_output_may_fill_the_context(make_engine):
    engine = make_engine(max_context_len=40)
    done = engine.generate("abc", SamplingParams(ignore_eos=True))
    assert done.finish_reason == "length"
    assert done.usage.prompt_tokens + done.usage.completion_tokens == 40


def test_output_equals_the_uncached_unbatched_reference(make_engine, tokenizer):
    engine = make_engine()
    prompt = tokenizer.encode("The quick brown fox")
    runner = engine._runner
    expected = runner.continuation(prompt, 40)
    params = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
    assert engine.generate(prompt, params).token_ids == expected
    again = engine.generate(prompt, params)
    assert again.token_ids == expected
    assert again.usage.cached_tokens == len(prompt) - 1


def test_a_longer_turn_reuses_all_but_what_is_new(make_engine, tokenizer):
    engine = make_engine()
    params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
    prompt = tokenizer.encode("first turn, which is a bit longer than a page")
    first = engine.generate(prompt, params)
    turn = [*prompt, *first.token_ids, *tokenizer.encode("and more")]
    second = engine.generate(turn, params)
    assert second.usage.cached_tokens == len(prompt) + len(first.token_ids) - 1


def test_stop_string_is_cut_and_named(make_engine):
    engine = make_engine([Script(["one STOP two"])])
    done = engine.generate("x", SamplingParams(temperature=0, stop=("STOP",)))
    assert (done.text, done.finish_reason, done.matched_stop) == ("one ", "stop", "STOP")


def test_events_come_in_order_and_end_once(make_engine):
    engine = make_engine([Script(["abc"])])
    request = Request(prompt_token_ids=(1, 2, 3), params=GREEDY)
    events = list(engine.submit(request))
    assert all(isinstance(event, TextDelta) for event in events[:-1])
    assert isinstance(events[-1], Finished)
    tokens = [token for event in events[:-1] for token in event.tokens]
    assert len(tokens) == events[-1].usage.completion_tokens


async def test_async_iteration_and_await_give_the_same(make_engine):
    engine = make_engine([Script(["abc def"])])
    stream = engine.submit(Request(prompt_token_ids=(1, 2), params=GREEDY))
    texts = [event.text async for event in stream if isinstance(event, TextDelta)]
    done = await engine.agenerate([1, 2], GREEDY)
    assert "".join(texts) == done.text == "abc def"


def test_abort_ends_the_stream_with_its_error(make_engine):
    engine = make_engine([Script(["again "], repeat=True)])
    stream = engine.submit(Request(prompt_token_ids=(1, 2), params=SamplingParams(temperature=0)))
    next(iter(stream))
    stream.abort()
    events = list(stream)
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, RequestAbortedError)
    assert engine.stats().num_running == 0


def test_leaving_the_with_block_aborts(make_engine):
    engine = make_engine([Script(["again "], repeat=True)])
    request = Request(prompt_token_ids=(1, 2), params=SamplingParams(temperature=0))
    with engine.submit(request) as stream:
        next(iter(stream))
    with pytest.raises(RequestAbortedError):
        stream.result(timeout=10)


def test_closing_answers_who_still_runs(make_engine):
    engine = make_engine([Script(["again "], repeat=True)])
    stream = engine.submit(Request(prompt_token_ids=(1, 2), params=SamplingParams(temperature=0)))
    next(iter(stream))
    engine.close()
    with pytest.raises(EngineDeadError):
        stream.result(timeout=10)
    with pytest.raises(EngineDeadError):
        engine.generate("x", GREEDY)


@pytest.mark.parametrize(
    ("request_args", "error"),
    [
        ({"prompt_token_ids": ()}, EmptyPromptError),
        ({"prompt_token_ids": (10**6,)}, InvalidParameterError),
        ({"prompt_token_ids": (1,) * 9000}, ContextLengthError),
        (
            {"prompt_token_ids": (1,), "params": SamplingParams(max_tokens=10**9)},
            ContextLengthError,
        ),
        (
            {"prompt_token_ids": (1,), "params": SamplingParams(logit_bias={10**6: 1.0})},
            InvalidParameterError,
        ),
        ({"prompt_token_ids": (1,), "score_from": 0}, InvalidParameterError),
        ({"prompt_token_ids": (1,), "deadline_s": 0}, InvalidParameterError),
    ],
)
def test_wrong_requests_are_refused_immediately_and_the_next_one_works(
    make_engine, request_args, error
):
    engine = make_engine([Script(["ok"])])
    with pytest.raises(error):
        engine.submit(Request(**request_args))
    assert engine.generate("x", GREEDY).text == "ok"


def test_a_request_larger_than_the_pool_is_refused(make_engine):
    engine = make_engine(num_pages=4, page_size=4)
    with pytest.raises(ContextLengthError, match="16 tokens"):
        engine.generate([1] * 17, GREEDY)
    done = engine.generate([1] * 10, SamplingParams(temperature=0, ignore_eos=True))
    assert (done.finish_reason, len(done.tokens)) == ("length", 6)


def test_prompt_logprobs_cover_the_prompt_though_it_is_cached(make_engine, tokenizer):
    engine = make_engine()
    prompt = tokenizer.encode("score this text, which has several pages " * 3)
    params = SamplingParams(temperature=0, max_tokens=0, prompt_logprobs=2)
    first = engine.generate(prompt, params)
    again = engine.generate(prompt, params)
    assert first.prompt_logprobs == again.prompt_logprobs
    tokens = first.prompt_logprobs.tokens
    assert [token.token_id for token in tokens] == prompt
    assert tokens[0].logprob is None
    assert all(t.logprob <= 0 and len(t.top_logprobs) == 2 for t in tokens[1:])
    assert first.finish_reason == "length"
    assert first.tokens == ()


def test_scoring_a_continuation_reuses_the_prompt(make_engine, tokenizer):
    engine = make_engine()
    prompt, choice = tokenizer.encode("a question with some length? "), tokenizer.encode("yes")
    params = SamplingParams(temperature=0, max_tokens=0, prompt_logprobs=0)
    whole = engine.generate([*prompt, *choice], params).prompt_logprobs
    request = Request(prompt_token_ids=(*prompt, *choice), params=params, score_from=len(prompt))
    events = list(engine.submit(request))
    scored = next(event for event in events if isinstance(event, PromptLogprobs))
    assert scored.start == len(prompt)
    assert scored.tokens == whole.tokens[len(prompt) :]
    assert events[-1].usage.cached_tokens == len(prompt) - 1


def test_min_tokens_bans_the_end_until_then(make_engine):
    engine = make_engine([Script(["a"])])
    done = engine.generate("x", SamplingParams(temperature=0, min_tokens=9, max_tokens=12))
    assert len(done.tokens) >= 9


def test_allowed_tokens_and_bad_words_hold(make_engine, tokenizer):
    engine = make_engine([Script(["the cat and the dog"])])
    allowed = tuple(tokenizer.encode("abc"))
    params = SamplingParams(temperature=0, max_tokens=9, allowed_token_ids=allowed)
    assert set(engine.generate("x", params).token_ids) <= set(allowed)
    params = SamplingParams(temperature=0, max_tokens=30, bad_words=("cat", " t"))
    text = engine.generate("y", params).text
    assert "cat" not in text
    assert " t" not in text


def test_seeded_sampling_repeats(make_engine):
    engine = make_engine()
    params = SamplingParams(temperature=2.0, seed=7, max_tokens=20, ignore_eos=True)
    first = engine.generate("abc", params).token_ids
    assert engine.generate("abc", params).token_ids == first
    other = SamplingParams(temperature=2.0, seed=8, max_tokens=20, ignore_eos=True)
    assert engine.generate("abc", other).token_ids != first
