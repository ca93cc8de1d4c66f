"""What is said of a run before it begins, and what is begun before its call."""

from __future__ import annotations

from ramet.lang import State, assistant, gen, program, user
from ramet.lang.graph.explain import critical_path
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


@program
def plan(s: State) -> None:
    s.system("x" * 100)
    branches = s.fork(3)
    for index, branch in enumerate(branches):
        branch.user("y" * 10)
        branch.gen("tip", max_tokens=5 + index)
    s.user(f"{branches['tip'][0]} and {branches['tip'][2]}" + "z" * 20)
    s.select("best", ["a", "bcd"])


def test_costs_are_added_up() -> None:
    cost = plan.explain()
    assert (cost.unit, cost.num_calls) == ("characters", 4)
    assert cost.prompt_len == 3 * 110 + 100 + 5 + 20
    assert cost.shared_len == 3 * 100
    assert cost.output_len == 5 + 6 + 7 + 3
    assert cost.critical_path == ["tip", "best"]
    printed = str(cost)
    assert "455 characters" in printed
    assert "tip → best" in printed


def test_a_tokenizer_makes_it_tokens() -> None:
    cost = plan.explain(tokenizer=scripted_tokenizer())
    assert cost.unit == "tokens"
    assert cost.prompt_len <= plan.explain().prompt_len


def test_open_ends_and_missing_limits_are_said() -> None:
    @program
    def looks(s: State) -> None:
        s.gen("a", max_tokens=None)
        if s["a"] == "x":
            s.gen("b")

    cost = looks.explain()
    assert cost.output_len is None
    assert "no limit" in str(cost)
    assert "reads 'a'" in str(cost)


def test_the_critical_path_is_the_longest_wait() -> None:
    @program
    def paths(s: State) -> None:
        short, long = s.fork(2)
        for name in ("a", "b", "c"):
            short.append(gen(name, max_tokens=2))
        long.append(gen("d", max_tokens=9))
        s += f"{short['c']}{long['d']}"
        s.gen("e", max_tokens=1)

    assert critical_path(paths.graph()) == ["d", "e"]


@program
def waits(s: State) -> None:
    s.system("A long beginning. " * 12)
    side = s.copy()
    side.user("quick")
    side.gen("x", max_tokens=150)
    s.user("B long middle. " * 12 + f"{side['x']} and more")
    s += assistant("So: " + gen("y", max_tokens=4))


def test_the_known_beginning_of_a_waiting_prompt_is_computed_ahead(scripted) -> None:
    backend = scripted({"x": "1", "y": "2"})
    waits.run(backend=backend)
    (head,) = backend.warmed
    assert [m.role for m in head.messages] == ["system", "user"]
    assert head.messages[1].content == "B long middle. " * 12
    backend = scripted({"x": "1", "y": "2"})
    waits.run(backend=backend, prefill_ahead=False)
    assert backend.warmed == []


def test_what_a_states_own_earlier_call_computes_is_not_computed_ahead(scripted) -> None:
    @program
    def chat(s: State) -> None:
        s += user("a" * 200)
        s.gen("x")
        s += user("b" * 200)
        s.gen("y")

    backend = scripted(default="z")
    chat.run(backend=backend)
    assert backend.warmed == []


def test_computing_ahead_changes_no_output_and_saves_the_call_its_prefill(scripted_engine) -> None:
    runs = {
        ahead: waits.run(backend=scripted_engine(), seed=3, prefill_ahead=ahead)
        for ahead in (True, False)
    }
    assert runs[True].values == runs[False].values
    calls = {
        ahead: next(c for c in run.trace.calls if c.name == "y" and c.kind == "gen")
        for ahead, run in runs.items()
    }
    assert calls[True].usage.cached_tokens > calls[False].usage.cached_tokens + 100
    prefill = [c for c in runs[True].trace.calls if c.kind == "prefill"]
    assert len(prefill) == 1
    assert runs[True].trace.num_calls == runs[False].trace.num_calls == 2
