"""A result follows its call, whatever order a client sends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ramet.runtime.chat.past_calls import results_after_calls

USER = {"role": "user", "content": "x"}


def asked(*ids: str) -> dict:
    return {"role": "assistant", "tool_calls": [{"id": each} for each in ids]}


def result(call_id: str | None) -> dict:
    return {"role": "tool", "content": f"of {call_id}", "tool_call_id": call_id}


def test_results_come_in_the_order_of_their_calls() -> None:
    sent = [USER, asked("a", "b"), result("b"), USER, result("a")]
    assert results_after_calls(sent) == [USER, asked("a", "b"), result("a"), result("b"), USER]


def test_calls_in_several_messages_have_their_own_results() -> None:
    sent = [asked("a"), asked("b"), result("a"), result("b")]
    assert results_after_calls(sent) == [asked("a"), result("a"), asked("b"), result("b")]


def test_an_id_that_comes_again_is_another_call() -> None:
    sent = [asked("a"), result("a"), asked("a"), USER, {**result("a"), "content": "second"}]
    assert results_after_calls(sent) == [sent[0], sent[1], sent[2], sent[4], USER]


def test_results_without_a_call_stay() -> None:
    sent = [USER, result("x"), asked("a"), result(None), USER]
    assert results_after_calls(sent) == sent


MESSAGES = st.lists(
    st.sampled_from([USER, asked("a"), asked("b", "c"), asked(), result("a"), result("b"),
                     result("c"), result(None)]), max_size=10)  # fmt: skip


@given(MESSAGES)
def test_nothing_is_lost_and_ordering_again_changes_nothing(sent: list[dict]) -> None:
    ordered = results_after_calls(sent)
    assert sorted(map(str, ordered)) == sorted(map(str, sent))
    assert results_after_calls(ordered) == ordered
    others = [each for each in sent if each["role"] != "tool"]
    assert [each for each in ordered if each["role"] != "tool"] == others
