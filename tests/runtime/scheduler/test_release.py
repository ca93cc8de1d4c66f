"""``Scheduler.release`` is every request's only way out, and always answers once."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import (
    DeadlineExceededError,
    InvalidParameterError,
    InvariantError,
    RametError,
    RequestAbortedError,
)
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.scheduler import SchedulerConfig, SequenceState
from ramet.runtime.testing.simulation import Simulation

ABORTED = RequestAbortedError("the request was aborted")


@pytest.fixture
def sim() -> Simulation:
    return Simulation(SchedulerConfig(), num_pages=64, page_size=4)


def request(**kwargs) -> Request:
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
    return Request(prompt_token_ids=tuple(range(40, 50)), params=params, **kwargs)


def test_a_held_request_does_not_run_until_it_is_added(sim):
    sequence = sim.add(request(), compiling=True)
    assert not sim.step()
    assert sim.scheduler.num_compiling == 1
    sim.scheduler.check()
    sim.scheduler.add(sequence)
    assert sim.scheduler.num_compiling == 0
    sim.drain()
    assert isinstance(sim.events[sequence][-1], Finished)


def test_a_deadline_ends_a_held_request(sim):
    sequence = sim.add(request(deadline_s=5.0), compiling=True)
    for _ in range(6):
        sim.step()
    (end,) = sim.events[sequence]
    assert isinstance(end, Failed)
    assert isinstance(end.error, DeadlineExceededError)
    assert sim.scheduler.num_compiling == 0


def test_a_deadline_counts_from_submission_after_compiling_too(sim):
    sequence = sim.add(request(deadline_s=5.0), compiling=True)
    sim.now += 4
    sim.scheduler.add(sequence)
    sim.now += 4
    sim.step()
    assert isinstance(sim.events[sequence][-1], Failed)


def test_what_is_added_or_held_after_its_release_stays_released(sim):
    held = sim.add(request(), compiling=True)
    sim.scheduler.release(held, ABORTED)
    sim.scheduler.add(held)
    sim.scheduler.hold(held)
    sim.scheduler.release(held, ABORTED)
    assert sim.scheduler.idle
    assert [type(event) for event in sim.events[held]] == [Failed]
    assert sim.scheduler.stats.ends == {ABORTED.code or ABORTED.type: 1}


@pytest.mark.parametrize("num_steps", [0, 2])
def test_the_caller_is_answered_even_if_the_bookkeeping_fails(sim, monkeypatch, num_steps):
    sequence = sim.add(request())
    for _ in range(num_steps):
        sim.step()

    def fail(*_: object, **__: object) -> None:
        raise InvariantError("broken")

    monkeypatch.setattr(sim.scheduler._ranking, "finish", fail)
    with pytest.raises(InvariantError):
        sim.scheduler.release(sequence, ABORTED)
    assert sim.events[sequence][-1].error is ABORTED
    assert sequence.state is SequenceState.FINISHED
    assert not sim.requests.live()


def test_other_errors_are_wrapped(sim):
    sequence = sim.add(request())
    sim.scheduler.release(sequence, KeyError("x"))
    error = sim.events[sequence][-1].error
    assert isinstance(error, RametError)
    assert "KeyError" in error.message
    assert isinstance(error.__cause__, KeyError)


def test_an_id_is_free_again_once_its_request_has_ended(sim):
    first = sim.add(request(request_id="a"))
    with pytest.raises(InvalidParameterError) as refused:
        sim.add(request(request_id="a"))
    assert refused.value.param == "request_id"
    sim.scheduler.release(first, ABORTED)
    sim.add(request(request_id="a"))
    sim.drain()


def test_output_is_counted_as_it_comes(sim):
    sequence = sim.add(request())
    counted = []
    while not isinstance((sim.events[sequence] or [None])[-1], Finished):
        sim.step()
        counted.append(sim.scheduler.stats.num_output_tokens)
    assert counted == sorted(counted)
    assert set(range(1, 7)) <= set(counted)
    assert counted[-1] == 6
