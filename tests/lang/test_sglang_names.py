"""Programs in the style of SGLang's frontend run with a change of import lines."""

from __future__ import annotations

import pytest

import ramet.lang.sgl as sgl
from ramet.lang import DuplicateNameError, State, UsageError, program


@sgl.function
def tip_suggestion(s):  # type: ignore[no-untyped-def]
    s += "Here are two tips for staying healthy: 1. Balanced Diet. 2. Regular Exercise.\n\n"
    forks = s.fork(2)
    for i, f in enumerate(forks):
        f += f"Now, expand tip {i + 1} into a paragraph:\n"
        f += sgl.gen("detailed_tip", max_tokens=64, stop="\n\n")
    s += "Tip 1:" + forks[0]["detailed_tip"] + "\n"
    s += "Tip 2:" + forks[1]["detailed_tip"] + "\n"
    s += "In summary" + sgl.gen("summary")


@sgl.function
def tool_use(s, question):  # type: ignore[no-untyped-def]
    s += "To answer this question: " + question + ". "
    s += "I need to use a " + sgl.gen("tool", choices=["calculator", "search engine"]) + ". "
    if s["tool"] == "calculator":
        s += "The math expression is" + sgl.gen("expression")
    elif s["tool"] == "search engine":
        s += "The key word to search is" + sgl.gen("word")


@sgl.function
def multi_turn(s, first, second):  # type: ignore[no-untyped-def]
    s += sgl.system("You are a helpful assistant.")
    s += sgl.user_begin() + first + sgl.user_end()
    s += sgl.assistant_begin() + sgl.gen("one", max_tokens=16) + sgl.assistant_end()
    with s.user():
        s += second
    with s.assistant():
        s += sgl.gen_int("two")


def test_forks_and_sums(scripted) -> None:
    backend = scripted({"detailed_tip": ["eat", "run"], "summary": " done"})
    state = tip_suggestion.run(backend=backend)
    assert state["summary"] == " done"
    assert state.text().endswith("Tip 1:eat\nTip 2:run\nIn summary done")


@pytest.mark.parametrize(
    ("tool", "variable"), [("calculator", "expression"), ("search engine", "word")]
)
def test_control_flow(scripted, tool: str, variable: str) -> None:
    sgl.set_default_backend(scripted({"tool": tool}, default="x"))
    try:
        state = tool_use.run(question="What is 1 + 2?", temperature=0.5)
        assert state[variable] == "x"
        assert state.get_meta_info("tool").choice_scores[tool] > -1
    finally:
        sgl.set_default_backend(None)


def test_turns_batches_and_streams(scripted, capsys) -> None:
    arguments = {"first": "a", "second": "b"}
    states = multi_turn.run_batch([arguments] * 3, backend=scripted({"one": "1", "two": "22"}))
    assert [state["two"] for state in states] == [22, 22, 22]
    script = scripted({"one": "1", "two": "2"})
    states = multi_turn.run_batch(
        [arguments] * 3, num_threads=2, progress_bar=True, temperature=0.0, backend=script
    )
    assert [state["two"] for state in states] == [2, 2, 2]
    assert "3/3" in capsys.readouterr().err
    assert {call.params.temperature for call in script.calls} == {0.0}
    with pytest.raises(UsageError, match="max_concurrency"):
        multi_turn.run_batch([arguments], num_threads=0, backend=script)
    state = multi_turn.run(
        **arguments, stream=True, max_new_tokens=9, backend=scripted({"one": "1", "two": "2"})
    )
    assert "".join(state.text_iter("one")) == "1"
    assert "".join(state.text_iter()) == "You are a helpful assistant.a1b2"


def test_scopes_and_set_variables(scripted) -> None:
    @program
    def scoped(s: State) -> str:
        s += "before "
        with s.var_scope("inner"):
            s += "x="
            s += sgl.gen("x")
            s += ";"
        s.set_var("copy", s["inner"])
        s.set_var("plain", "text")
        s += f" [{s['copy']} {s['plain']}]"
        with pytest.raises(DuplicateNameError):
            s.set_var("x", "again")
        return s["inner"].value

    run = scoped.run(backend=scripted({"x": "1"}))
    assert run.result == "x=1;"
    assert run.text() == "before x=1; [x=1; text]"
