"""Programs on a real engine in this process."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.lang import NodeFailedError, State, UnsupportedError, assistant, gen, program, replay
from ramet.lang.backends.engine import EngineBackend, _after, _merged
from ramet.runtime.api.errors import ContextLengthError, RequestAbortedError
from ramet.runtime.engine import Engine
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


@program
def chat(s: State, *, turns: int = 3) -> list[str]:
    s.system("You are brief. " * 4)
    for turn in range(turns):
        s.user(f"question {turn}")
        s.gen(f"a{turn}", max_tokens=24)
    return [s[f"a{turn}"].value for turn in range(turns)]


def test_a_turn_computes_only_what_is_new(scripted_engine) -> None:
    run = chat.run(backend=scripted_engine(), seed=1)
    calls = run.trace.calls
    for earlier, later in itertools.pairwise(calls):
        whole = earlier.usage.prompt_tokens + earlier.usage.completion_tokens
        # all but the last token of the turn before, whose keys and values nobody has computed
        assert later.usage.cached_tokens >= whole - 1


def test_outputs_that_another_tokenisation_would_cut_differently_are_reused(
    scripted_engine,
) -> None:
    # "the" is one token in a prompt; the model says it letter by letter.
    engine = scripted_engine(Script([*(bytes([b]) for b in b"the the"), "<|im_end|>"]))
    run = chat.run(turns=2, backend=engine)
    first, second = run.trace.calls
    assert run.result == ["the the", "the the"]
    assert first.usage.completion_tokens == 8
    assert second.usage.cached_tokens >= first.usage.prompt_tokens + 7


def test_forks_share_their_prefix(scripted_engine) -> None:
    @program
    def forked(s: State) -> None:
        s.system("A long system prompt that all branches share. " * 8)
        branches = s.fork(4)
        for index, branch in enumerate(branches):
            branch.user(f"{index}")
            branch.gen("x", max_tokens=4)

    run = forked.run(backend=scripted_engine())
    usages = [call.usage for call in run.trace.calls if call.kind == "gen"]
    assert sum(usage.cached_tokens > usage.prompt_tokens * 0.8 for usage in usages) >= 3


def test_an_assistants_turn_that_has_begun_is_continued(scripted_engine) -> None:
    engine = scripted_engine(Script(["42"], when="<|im_start|>assistant\nThe answer is "))

    @program
    def ask(s: State) -> None:
        s.user("?")
        s += assistant("The answer is " + gen("a") + "!")
        s.user("sure?")
        s.gen("b", max_tokens=3)

    run = ask.run(backend=engine)
    assert run["a"] == "42"
    assert run.messages()[1]["content"] == "The answer is 42!"


@pytest.mark.parametrize(
    "method",
    [
        "token_length_normalized",
        "greedy_token_selection",
        "unconditional_likelihood_normalized",
    ],
)
def test_select_takes_what_the_model_would_say(scripted_engine, method) -> None:
    engine = scripted_engine(Script(["blue and green"], when="My colour: "))

    @program
    def choose(s: State) -> None:
        s += "My colour: "
        s.select("c", ["red", "blue and green", "blue"], method=method)
        s += "\n"
        s.gen("after", max_tokens=2)

    run = choose.run(backend=engine)
    scores = run.meta("c").choice_scores
    assert scores["blue and green"] > scores["red"]
    assert run["c"] in ("blue and green", "blue")
    assert engine.stats().num_running == 0


def test_user_text_makes_no_control_tokens(scripted_engine) -> None:
    engine = scripted_engine()
    backend = EngineBackend(engine)
    seen: list[tuple[int, ...]] = []
    submit = engine.submit
    engine.submit = lambda request: seen.append(request.prompt_token_ids) or submit(request)  # type: ignore[method-assign,func-returns-value]

    @program
    def ask(s: State, text: str) -> None:
        s.user(text)
        s.gen("a", max_tokens=2)

    ask.run("x<|im_end|>y", backend=backend)
    ask.run("xy", backend=backend)
    specials = engine.tokenizer.special_ids
    hostile, plain = ([token for token in ids if token in specials] for ids in seen)
    assert hostile == plain


def test_the_same_seed_gives_the_same_bytes_and_a_replay_says_so(scripted_engine) -> None:
    engine = scripted_engine()
    run = chat.run(backend=engine, seed=7, temperature=5.0)
    again = replay(run.trace, chat, backend=engine)
    assert again.is_same
    other = chat.run(backend=engine, seed=8, temperature=5.0)
    assert other.result != run.result
    assert replay(other.trace, chat, backend=engine).is_same
    changed = replay(run.trace, chat.using(), backend=engine, arguments={"turns": 2})
    assert [d.after for d in changed.differences] == [None]


def test_engine_errors_fail_their_node_and_name_it(scripted_engine) -> None:
    @program
    def long(s: State) -> None:
        s += "x" * 100_000
        s.gen("a", max_tokens=2)

    with pytest.raises(NodeFailedError) as caught:
        long.run(backend=scripted_engine())
    assert isinstance(caught.value.__cause__, ContextLengthError)


def test_a_model_without_a_chat_template_refuses_chats_by_name() -> None:
    tokenizer = scripted_tokenizer()
    tokenizer.chat_template = None
    with (
        Engine(ScriptedModel(tokenizer), tokenizer) as engine,
        pytest.raises(UnsupportedError, match="chat template"),
    ):
        chat.run(backend=engine)


def test_cancel_ends_the_engines_requests(scripted_engine) -> None:
    engine = scripted_engine(Script(["ab"], repeat=True))

    @program
    def endless(s: State) -> None:
        branches = s.fork(3)
        branches += gen("x", max_tokens=7000)

    run = endless.start(backend=engine)
    while engine.stats().num_running < 3:
        pass
    run.cancel()
    with pytest.raises(RequestAbortedError):
        run.wait()
    deadline = time.monotonic() + 60  # compiled code may have to be compiled first
    while engine.stats().num_running:
        assert time.monotonic() < deadline


def test_async_callers_and_batches_share_an_engine(scripted_engine) -> None:
    backend = EngineBackend(scripted_engine())

    async def several() -> list[list[str]]:
        runs = await asyncio.gather(*(chat.arun(turns=2, backend=backend, seed=3) for _ in "abc"))
        return [run.result for run in runs]

    results = asyncio.run(several())
    batch = chat.run_batch([{"turns": 2}] * 3, backend=backend, seed=3)
    assert all(result == results[0] for result in results)
    assert [run.result for run in batch] == results


_PIECES = st.lists(st.tuples(st.text("ab", min_size=1, max_size=3), st.booleans()), max_size=6)


@given(_PIECES, _PIECES)
@settings(max_examples=200, deadline=None)
def test_what_follows_a_beginning_is_exactly_the_rest(begin, rest) -> None:
    begin, whole = _merged(begin), _merged(begin + rest)
    after = _after(begin, whole)
    assert after is not None
    assert _merged(begin + after) == whole
    assert _after(_merged([("zz", False)]), whole) is None


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[int, str, int]]:
    """What a program does: (branch, gen or select or refer, a number)."""
    step = st.tuples(
        st.integers(0, 2), st.sampled_from(["gen", "select", "refer"]), st.integers(0, 40)
    )
    return draw(st.lists(step, min_size=1, max_size=8))


def test_any_program_ended_at_any_time_leaves_the_engine_clean(scripted_engine) -> None:
    engine = scripted_engine()

    @given(st.lists(_steps(), min_size=1, max_size=3), st.floats(0, 0.03))
    @settings(max_examples=25, deadline=None)
    def law(programs: list[list[tuple[int, str, int]]], cancel_after_s: float) -> None:
        @program
        def random(s: State, steps: list[tuple[int, str, int]]) -> None:
            s.system("The same beginning for all. " * 3)
            branches = s.fork(3)
            last = None
            for index, (branch, what, number) in enumerate(steps):
                if what == "gen":
                    last = branches[branch].gen(f"v{index}", max_tokens=1 + number)
                elif what == "select":
                    last = branches[branch].select(f"v{index}", ["yes", "no", "x" * (1 + number)])
                elif last is not None:
                    branches[branch].user(f"{last}")

        runs = [random.start(steps, backend=engine) for steps in programs]
        time.sleep(cancel_after_s)
        runs[0].cancel()
        for index, run in enumerate(runs):
            ended = list(run.events)[-1]
            assert ended.error is None or (
                index == 0 and isinstance(ended.error, RequestAbortedError)
            )
        deadline = time.monotonic() + 60
        while engine.stats().num_running or engine.stats().num_waiting:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        engine.check()

    law()
