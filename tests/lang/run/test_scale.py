"""Large programs: work grows with their size and no faster, and they take no thread each."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ramet.lang import ScriptedBackend, State, program
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.graph.nodes import Node


@program
def chain(s: State, size: int) -> str:
    """Calls one after the other, each sent with all before it."""
    s.system("Count.")
    for index in range(size):
        s.user(f"{index}?")
        s.gen(f"v{index}", max_tokens=4)
    return s[f"v{size - 1}"].value


@program
def looking(s: State, size: int) -> int:
    """The same, with a look at each value before the next call."""
    s += "Count."
    return sum(len(s.gen(f"v{index}", max_tokens=4).value) for index in range(size))


@program
def wide(s: State, size: int) -> list[str]:
    """Branches side by side."""
    s.user("Count.")
    branches = s.fork(size)
    for branch in branches:
        branch.gen("v", max_tokens=4)
        branch.user("On.")
        branch.gen("w", max_tokens=4)
    return [value.value for value in branches["w"]]


@pytest.fixture
def num_looked_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many nodes were looked up in graphs since the last question."""
    count = 0
    plain = RequestGraph.__getitem__

    def counting(self: RequestGraph, node_id: str) -> Node:
        nonlocal count
        count += 1
        return plain(self, node_id)

    def so_far() -> int:
        nonlocal count
        was, count = count, 0
        return was

    monkeypatch.setattr(RequestGraph, "__getitem__", counting)
    return so_far


@pytest.mark.parametrize("each", [chain, looking, wide], ids=lambda each: each.name)
def test_work_grows_with_the_number_of_calls(each, num_looked_up) -> None:
    backend = ScriptedBackend(default="five.")
    each.run(200, backend=backend)
    small = num_looked_up()
    each.run(800, backend=backend)
    assert num_looked_up() < 4.5 * small


def test_thousands_of_calls_in_one_program() -> None:
    backend = ScriptedBackend(default="five.")
    run = chain.run(3000, backend=backend)
    assert run.result == "five."
    assert len(backend.calls) == 3000
    assert len(backend.calls[-1].prompt.messages) == 2 * 3000
    assert run["v1234"] == "five."


def test_thousands_of_branches() -> None:
    backend = ScriptedBackend(default="five.")
    assert wide.run(2000, backend=backend).result == ["five."] * 2000
    assert len(backend.calls) == 4000


def test_a_batch_of_thousands_takes_no_threads() -> None:
    backend = ScriptedBackend(default="five.")
    most = 0

    def answer(_: object) -> str:
        nonlocal most
        most = max(most, threading.active_count())
        return "five."

    backend = ScriptedBackend(default=answer)
    before = threading.active_count()
    runs = chain.run_batch([{"size": 1} for _ in range(2000)], backend=backend)
    assert [run.result for run in runs] == ["five."] * 2000
    assert most <= before + 1  # the loop that all programs share
