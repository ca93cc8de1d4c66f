"""What a program says is what is sent; what it reads is what came."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from pydantic import BaseModel

from ramet.lang import (
    DuplicateNameError,
    RoleError,
    ScriptedBackend,
    State,
    UnknownNameError,
    UnresolvedValueError,
    UsageError,
    assistant,
    assistant_begin,
    assistant_end,
    describe_type,
    examples,
    gen,
    program,
    select,
    set_default_backend,
    system,
    user,
    user_begin,
    user_end,
)
from ramet.lang.types.values import Value
from ramet.runtime.api.errors import InvalidParameterError


def messages(backend: ScriptedBackend, index: int = -1) -> list[tuple[str | None, str]]:
    return [(m.role, m.content) for m in backend.calls[index].prompt.messages]


def test_text_and_calls_make_the_prompt_in_order(scripted) -> None:
    backend = scripted({"a": "one", "b": "two"})

    @program
    def both(s: State) -> tuple[str, str]:
        s += "First: " + gen("a", stop="\n") + "\nSecond: "
        s += gen("b", max_tokens=5)
        return s["a"].value, s["b"].value

    run = both.run(backend=backend)
    assert run.result == ("one", "two")
    assert run.text() == "First: one\nSecond: two"
    assert messages(backend, 1) == [(None, "First: one\nSecond: ")]
    assert backend.calls[0].params.stop == ("\n",)
    assert backend.calls[1].params.max_tokens == 5


def test_turns_as_calls_as_context_managers_and_as_marks_are_one(scripted) -> None:
    @program
    def as_calls(s: State) -> None:
        s += system("S")
        s += user("U")
        s += assistant("A: " + gen("x"))

    @program
    def as_contexts(s: State) -> None:
        with s.system():
            s += "S"
        with s.user():
            s += "U"
        with s.assistant():
            s += "A: "
            s += gen("x")

    @program
    def as_marks(s: State) -> None:
        s.system("S")
        s += user_begin() + "U" + user_end()
        s += assistant_begin() + "A: " + gen("x") + assistant_end()

    for each in (as_calls, as_contexts, as_marks):
        backend = scripted({"x": "yes"})
        run = each.run(backend=backend)
        assert messages(backend) == [("system", "S"), ("user", "U"), ("assistant", "A: ")]
        assert run.messages() == [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": "A: yes"},
        ]


def test_a_call_in_a_chat_opens_the_assistants_turn(scripted) -> None:
    backend = scripted({"x": "1", "y": "2"})

    @program
    def chat(s: State) -> None:
        s.user("a")
        s.gen("x")
        s.user("b")
        s.gen("y")

    chat.run(backend=backend)
    assert messages(backend) == [("user", "a"), ("assistant", "1"), ("user", "b")]


def test_a_value_in_text_makes_an_edge_and_does_not_wait(scripted) -> None:
    backend = scripted({"x": "fox", "y": "done"})

    @program
    def later(s: State) -> str:
        a, b = s.fork(2)
        x = a.append("name: ").gen("x")
        b += f"the {x} said {x:>5}: "
        y = b.gen("y")
        assert not x.is_ready
        return str(y)

    run = later.run(backend=backend)
    assert run.result == "done"
    assert backend.calls[1].prompt.text == "the fox said   fox: "
    assert run.graph.needs("0.1.1") == {"0.0.1"}


def test_braces_percent_signs_and_sentinels_in_user_text_stay_text(scripted) -> None:
    nasty = "{x} %s {} ramet_ref_" + "0" * 16 + "_00000000_" + "a" * 32
    backend = scripted({"x": "fox"})

    @program
    def echo(s: State, text: str) -> None:
        s += text
        s.gen("x")

    echo.run(nasty, backend=backend)
    assert backend.calls[0].prompt.text == nasty


def test_what_a_model_writes_is_never_read_as_a_reference(scripted) -> None:
    seen: list[str] = []

    @program
    def leak(s: State) -> None:
        first = s.gen("a")
        seen.append(f"{first}")
        s += f" {first}"
        s.gen("b")

    # Even if the model could name a reference, its text is data.
    backend = scripted({"a": lambda call: seen[-1] if seen else "x", "b": "ok"})
    leak.run(backend=backend)
    assert backend.calls[1].prompt.text == f"{seen[0]} {seen[0]}"


def test_independent_calls_run_together_and_dependent_ones_in_order(scripted) -> None:
    backend = scripted({"a": "1", "b": "2", "c": "3"})
    backend.hold("a", "b")
    running: list[set[str]] = []

    @program
    def forked(s: State) -> None:
        one, two = s.fork(2)
        a, b = one.gen("a"), two.gen("b")
        s += f"{a}{b}"
        s.gen("c")

    run = forked.start(backend=backend)
    while len(backend.running) < 2:
        pass
    running.append(set(backend.running))
    backend.release("a", "b")
    run.wait()
    assert running == [{"0.0.0", "0.1.0"}]
    assert backend.calls[-1].prompt.text == "12"


def test_a_look_waits_for_that_value_alone(scripted) -> None:
    backend = scripted({"slow": "s", "fast": "f"})
    backend.hold("slow")
    looked = threading.Event()

    @program
    def race(s: State) -> str:
        a, b = s.fork(2)
        slow, fast = a.gen("slow"), b.gen("fast")
        if fast == "f":
            looked.set()
        return f"{slow.value}{fast.value}"

    run = race.start(backend=backend)
    assert looked.wait(5)
    assert not run.done
    backend.release("slow")
    assert run.result == "sf"


def test_looks_of_every_kind(scripted) -> None:
    backend = scripted({"n": "7", "t": "a b", "f": "0.5", "l": [[1, 2]]}, check_constraints=False)

    @program
    def looks(s: State) -> None:
        n, f = s.gen("n", int), s.gen("f", float)
        t, items = s.gen("t"), s.gen("l", list[int])
        assert int(n) == 7
        assert n == 7
        assert n + 1 == 8
        assert 1 + n == 8
        assert n > 6
        assert not n < 7
        assert range(10)[n] == 7
        assert float(f) == 0.5
        assert t.split() == ["a", "b"]
        assert len(t) == 3
        assert "a" in t
        assert t[0] == "a"
        assert "<" + t == f"<{t}"
        assert t + ">" == f"{t}>"
        assert list(items) == [1, 2]
        assert bool(items)
        assert {t: 1}["a b"] == 1
        assert t in ["a b"]
        assert str(t) == "a b"
        assert repr(n) == "7"

    looks.run(backend=backend)


def test_async_programs_await_values(scripted) -> None:
    backend = scripted({"a": "1", "b": "2"})

    @program
    async def both(s: State) -> str:
        a, b = s.fork(2)
        x, y = a.gen("a"), b.gen("b")
        return f"{await x}{await y}"

    assert both.run(backend=backend).result == "12"
    assert asyncio.run(both.arun(backend=scripted({"a": "3", "b": "4"}))).result == "34"


def test_an_async_program_that_looks_without_await_is_reported(scripted) -> None:
    @program
    async def hasty(s: State) -> None:
        bool(s.gen("a"))

    with pytest.raises(UnresolvedValueError, match="await"):
        hasty.run(backend=scripted({"a": "1"}))


async def test_run_works_where_a_loop_is_running(scripted) -> None:
    @program
    def simple(s: State) -> Value[str]:
        return s.gen("a")

    assert simple.run(backend=scripted({"a": "1"})).result == "1"
    assert (await simple.arun(backend=scripted({"a": "1"}))).result == "1"
    run = simple.start(backend=scripted({"a": "1"}))
    assert (await run).result == "1"


def test_programs_call_programs_in_place_and_in_parallel(scripted) -> None:
    backend = scripted({"q": ["1", "2"], "z": "3"})

    @program
    def ask(s: State, what: str) -> str:
        s += f"{what}?"
        return s.gen("q").value

    @program
    async def later(s: State) -> str:
        return await s.gen("z")

    @program
    def outer(s: State) -> list[object]:
        beside = s.spawn(ask, "beside")
        z = s.spawn(later)
        here = ask(s, "here")
        return [here, beside, z]

    run = outer.run(backend=backend)
    assert sorted(run.result) == ["1", "2", "3"]
    assert {c.prompt.text for c in backend.calls} == {"beside?", "here?", ""}


def test_a_program_may_run_another_as_a_run_of_its_own(scripted) -> None:
    @program
    def inner(s: State) -> str:
        return s.gen("i").value

    @program
    def outer(s: State) -> str:
        return inner.run(backend=scripted({"i": "in"})).result + s.gen("o").value

    assert outer.run(backend=scripted({"o": "out"})).result == "inout"


def test_thousand_runs_need_no_threads(scripted) -> None:
    backend = scripted({"a": "1"})
    backend.hold("a")

    @program
    def simple(s: State, n: int) -> int:
        return int(s.gen("a").value) + n

    before = threading.active_count()
    runs = [simple.start(n, backend=backend) for n in range(1000)]
    while len(backend.calls) < 1000:
        pass
    assert threading.active_count() <= before + 1
    backend.release("a")
    assert [run.result for run in runs] == [n + 1 for n in range(1000)]


def test_run_batch_keeps_order_and_bounds_concurrency(scripted) -> None:
    backend = scripted({"a": lambda call: call.prompt.text})

    @program
    def echo(s: State, text: str) -> str:
        s += text
        return s.gen("a").value

    runs = echo.run_batch([{"text": str(n)} for n in range(50)], backend=backend, max_concurrency=3)
    assert [run.result for run in runs] == [str(n) for n in range(50)]


def test_a_failed_run_of_a_batch_fails_alone(scripted) -> None:
    backend = scripted({"a": lambda call: ValueError("x") if call.prompt.text == "1" else "ok"})

    @program
    def echo(s: State, text: str) -> str:
        s += text
        return s.gen("a").value

    runs = echo.run_batch([{"text": str(n)} for n in range(3)], backend=backend)
    assert [run.error is None for run in runs] == [True, False, True]


def test_fork_broadcasts_joins_and_inherits(scripted) -> None:
    backend = scripted({"base": "b", "tip": ["x", "y"]})

    @program
    def tips(s: State) -> list[str]:
        s += "Base: " + gen("base")
        branches = s.fork(2)
        branches += lambda index: f" #{index}"
        branches += ["!", "?"]
        branches += gen("tip")
        assert branches[0]["base"] == "b"
        branches.join()
        s += f" all: {s['tip']}"
        return s["tip"].value

    run = tips.run(backend=backend)
    assert run.result == ["x", "y"]
    assert [c.prompt.text for c in backend.calls[1:]] == ["Base: b #0!", "Base: b #1?"]
    assert run.text() == "Base: b all: x\ny"
    assert run["tip"] == ["x", "y"]


def test_a_joined_branch_has_ended(scripted) -> None:
    @program
    def after(s: State) -> None:
        branches = s.fork(2)
        branches.join()
        branches[0].append("more")

    with pytest.raises(UsageError, match="ended"):
        after.run(backend=scripted())


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda s: (s.gen("a"), s.gen("a")), DuplicateNameError),
        (lambda s: (s.gen("a"), s.fork(2)[0].gen("a")), DuplicateNameError),
        (lambda s: s.gen("a", temprature=1), InvalidParameterError),
        (lambda s: s.gen("a", temperature=-1), InvalidParameterError),
        (lambda s: s.gen("a", regex="a", dtype=int), UsageError),
        (lambda s: s["b"], UnknownNameError),
        (lambda s: s.append(user("x"), "raw"), RoleError),
        (lambda s: s.append("raw", user("x")), RoleError),
        (lambda s: s.append(user(gen("a"))), RoleError),
        (lambda s: s.append(user(user("a"))), RoleError),
        (lambda s: s.append(3), TypeError),
        (lambda s: s.append(s.gen("a")), UsageError),
        (lambda s: s.append(user("x")).assistant(s.gen("a")), UsageError),
        (lambda s: s.select("a", []), UsageError),
        (lambda s: s.select("a", ["x", ""]), UsageError),
        (lambda s: s.fork(0), UsageError),
    ],
)
def test_a_wrong_program_is_refused_before_anything_is_sent(scripted, body, error) -> None:
    backend = scripted(default="z")

    @program
    def wrong(s: State) -> None:
        body(s)

    with pytest.raises(error):
        wrong.run(backend=backend)
    assert backend.calls == []


def test_a_value_of_another_run_is_refused(scripted) -> None:
    backend = scripted(default="z")
    kept: list[Value[str]] = []

    @program
    def keep(s: State) -> None:
        kept.append(s.gen("a"))

    @program
    def use(s: State, how: str) -> None:
        if how == "text":
            s += f"{kept[0]}"
        elif how == "value":
            s += kept[0]
        else:
            s.select("x", [kept[0], "b"])

    keep.run(backend=backend)
    for how in ("text", "value", "choice"):
        with pytest.raises(UsageError, match="another run"):
            use.run(how, backend=backend)
    assert str(kept[0]) == "z"  # a look is fine, also later and from elsewhere


def test_options_can_not_refer_to_values(scripted) -> None:
    @program
    def wrong(s: State) -> None:
        x = s.gen("a")
        s.gen("b", stop=f"{x}")

    with pytest.raises(UsageError, match="stop"):
        wrong.run(backend=scripted(default="z"))


def test_select_picks_and_scores(scripted) -> None:
    backend = scripted({"c": {"yes": -0.2, "no": -1.0}, "d": "b"})

    @program
    def choose(s: State) -> None:
        s += "q " + select("c", ["no", "yes"]) + ", " + select("d", ["a", "b"])

    run = choose.run(backend=backend)
    assert run.text() == "q yes, b"
    assert run.meta("c").choice_scores == {"no": -1.0, "yes": -0.2}


def test_choices_may_be_values(scripted) -> None:
    backend = scripted({"x": ["p", "q"], "best": "q"})

    @program
    def judge(s: State) -> None:
        one, two = s.fork(2)
        a, b = one.gen("x"), two.gen("x")
        s.select("best", [a, f"{b}"])

    assert judge.run(backend=backend)["best"] == "q"
    assert backend.calls[-1].continuations == ("p", "q")


def test_streams_give_one_variable_or_all_text(scripted) -> None:
    def make() -> ScriptedBackend:
        return scripted({"a": "first answer", "b": "second", "c": "yes"})

    @program
    def chat(s: State) -> None:
        s += "A: " + gen("a") + " B: "
        side = s.fork(1)[0]
        side.gen("b")
        s += f"[{side['b']}] " + select("c", ["yes", "no"]) + "."

    run = chat.run(stream=True, backend=make())
    assert "".join(run.text_iter("b")) == "second"
    assert "".join(chat.stream(backend=make()).text_iter()) == "A: first answer B: [second] yes."

    async def collect() -> str:
        run = chat.start(backend=make())
        return "".join([piece async for piece in run.text_async_iter("a")])

    assert asyncio.run(collect()) == "first answer"


def test_a_stream_raises_the_runs_error(scripted) -> None:
    @program
    def broken(s: State) -> None:
        s.gen("a")
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        list(broken.stream(backend=scripted({"a": "x"})).text_iter())


def test_settings_by_name_by_using_and_by_default(scripted) -> None:
    backend = scripted(default="z")

    @program
    def simple(s: State, temperature: str = "none") -> str:
        s.gen("a")
        return temperature

    simple.using(backend=backend, max_tokens=7, top_k=3).run()
    assert backend.calls[-1].params.max_tokens == 7
    assert backend.calls[-1].params.top_k == 3
    simple.run(backend=backend, max_new_tokens=9)
    assert backend.calls[-1].params.max_tokens == 9
    # a parameter of the program's own by the same name stays the program's
    assert simple.run(backend=backend, temperature="hot").result == "hot"
    set_default_backend(backend)
    try:
        simple.run()
    finally:
        set_default_backend(None)
    with pytest.raises(UsageError, match="no backend"):
        simple.run()
    with pytest.raises(InvalidParameterError, match="max_tokens"):
        simple.using(max_token=3)
    with pytest.raises(InvalidParameterError):
        simple.run(backend=backend, top_p=7)
    with pytest.raises(TypeError):
        simple.run(backend=backend, unknown=3)


def test_seeds_follow_from_the_runs_seed_and_the_place(scripted) -> None:
    @program
    def three(s: State) -> None:
        branches = s.fork(2)
        branches += gen("a")
        s.gen("b", seed=5)

    def seeds(seed: int) -> list[int | None]:
        backend = scripted(default="z")
        three.run(backend=backend, seed=seed)
        return [call.params.seed for call in sorted(backend.calls, key=lambda c: c.node_id)]

    assert seeds(1) == seeds(1)
    assert len(set(seeds(1))) == 3
    assert set(seeds(1)) & set(seeds(2)) == {5}


def test_a_state_is_of_one_thread(scripted) -> None:
    @program
    def threaded(s: State) -> None:
        caught: list[BaseException] = []

        def work() -> None:
            try:
                s.append("x")
            except UsageError as error:
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        raise caught[0]

    with pytest.raises(UsageError, match="thread"):
        threaded.run(backend=scripted())


def test_a_model_is_shown_a_schema_and_examples(scripted) -> None:
    class Report(BaseModel):
        title: str

    @program
    def asks(s: State) -> None:
        s += system(describe_type(Report))
        s += examples([("One?", Report(title="a")), ("Two?", "text")])
        s.user("Three?")
        s.gen("x", Report)

    messages = asks.run(backend=scripted({"x": {"title": "b"}})).messages()
    schema = json.loads(messages[0]["content"])
    assert (schema["required"], schema["additionalProperties"]) == (["title"], False)
    assert [(m["role"], m["content"]) for m in messages[1:]] == [
        ("user", "One?"),
        ("assistant", '{"title":"a"}'),
        ("user", "Two?"),
        ("assistant", "text"),
        ("user", "Three?"),
        ("assistant", '{"title":"b"}'),
    ]


@pytest.mark.parametrize("seed", [None, 5])
def test_several_texts_are_drawn_from_one_prompt(scripted, seed: int | None) -> None:
    @program
    def several(s: State) -> list[int]:
        s.user("A number?")
        options = {} if seed is None else {"seed": seed}
        numbers = s.gen("n", int, n=3, **options)
        s += user(f"{s['n']}") + assistant(gen("after", n=2))
        return numbers.value

    backend = scripted({"n": ["7", "8", "9"], "after": ["a", "b"]})
    run = several.run(backend=backend)
    assert run.result == run["n"] == [7, 8, 9]
    assert run["after"] == ["a", "b"]
    prompts = {call.prompt.messages for call in backend.calls if call.name == "n"}
    assert len(prompts) == 1
    assert len({call.params.seed for call in backend.calls}) == 5
    assert [message["content"] for message in run.messages()] == ["A number?", "7\n8\n9"]
    assert several.graph().is_complete is False  # it reads a value


@pytest.mark.parametrize("n", [0, -1, True, "3"])
def test_the_number_of_texts_is_a_number(scripted, n: object) -> None:
    with pytest.raises(UsageError, match="number of texts"):
        program(lambda s: s.gen("x", n=n)).run(backend=scripted())
