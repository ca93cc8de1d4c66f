"""A question of the engine's process gets one answer, or none if its caller has given up."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.engine.process.pending_answers import PendingAnswers


def test_answers_reach_their_questions_once() -> None:
    answers = PendingAnswers()
    (first, future), (second, other) = answers.add(), answers.add()
    answers.settle(second, "b", None)
    answers.settle(first, "a", None)
    answers.settle(first, "again", None)
    assert (future.result(0), other.result(0)) == ("a", "b")
    assert not answers.remove(first)


def test_the_end_of_the_process_ends_every_question() -> None:
    answers = PendingAnswers()
    futures = [answers.add()[1] for _ in range(3)]
    futures[1].cancel()
    answers.fail_all(EngineDeadError("dead"))
    for future in (futures[0], futures[2]):
        with pytest.raises(EngineDeadError):
            future.result(0)
    assert futures[1].cancelled()


def test_answers_to_removed_questions_are_dropped() -> None:
    answers = PendingAnswers()
    number, future = answers.add()
    assert answers.remove(number)
    answers.settle(number, 1, None)
    assert not future.done()
