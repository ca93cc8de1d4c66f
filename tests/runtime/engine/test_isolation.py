"""What one request must not notice of another: its salt's prefixes, its length, its end."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import OutOfPagesError, QueueFullError
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.scheduler import SchedulerConfig, Sequence, SequenceState
from ramet.runtime.testing.simulation import Simulation

PROMPT = tuple(range(40, 240))


def simulate(num_pages: int = 200, page_size: int = 4, **config) -> Simulation:
    limits = {"max_num_seqs": 8, "max_tokens_per_step": 32, "max_logits_per_step": 32}
    return Simulation(SchedulerConfig(**(limits | config)), num_pages, page_size)


def request(prompt: tuple[int, ...], max_tokens: int = 8, **kwargs) -> Request:
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    return Request(prompt_token_ids=prompt, params=params, **kwargs)


def times(sim: Simulation, sequence: Sequence) -> tuple[float | None, float | None, float | None]:
    """When the sequence started, had its first token, and ended, from its submission."""
    while sequence.state is not SequenceState.FINISHED:
        sim.step()
    end = sim.events[sequence][-1]
    assert isinstance(end, Finished)
    return end.timings.scheduled_s, end.timings.first_token_s, end.timings.finished_s


@pytest.mark.parametrize("policy", ["fcfs", "longest-prefix", "program-aware"])
@pytest.mark.parametrize("head_start", [1, 3, 100])
@pytest.mark.parametrize("max_draft_len", [0, 4])
def test_another_salt_makes_no_difference_in_time(policy, head_start, max_draft_len):
    """A prefix that another salt computes now, or has cached, is as any other prefix."""
    taken = []
    for others in (PROMPT, tuple(reversed(PROMPT))):
        sim = simulate(policy=policy, max_draft_len=max_draft_len)
        sim.add(request(others, 30, cache_salt="theirs"))
        for _ in range(head_start):
            sim.step()
        taken.append(times(sim, sim.add(request(PROMPT, 30, cache_salt="mine"))))
        sim.drain()
    assert taken[0] == taken[1]


def test_the_same_salt_does_make_a_difference():
    sim = simulate()
    cold = times(sim, sim.add(request(PROMPT, cache_salt="mine")))
    warm = times(sim, sim.add(request(PROMPT, cache_salt="mine")))
    assert warm[1] < cold[1]


def test_a_prompt_of_a_hundred_thousand_tokens_delays_nobody_by_more_than_a_step():
    sim = simulate(num_pages=1200, page_size=128, max_tokens_per_step=2048)
    others = [sim.add(request((50 + i,) * 9, max_tokens=120)) for i in range(5)]
    sim.step()
    long = sim.add(request(tuple(i % 200 + 20 for i in range(100_000)), max_tokens=2))
    for _ in range(40):
        before = [sequence.num_output for sequence in others]
        sim.step()
        assert [sequence.num_output for sequence in others] == [count + 1 for count in before]
    assert 0 < long.num_computed < 100_000
    sim.drain()
    assert isinstance(sim.events[long][-1], Finished)


def test_the_last_one_standing_gets_a_clean_error():
    sim = simulate(num_pages=30)
    sim.max_len = 10_000  # a request that admission would have refused
    alone = sim.add(request(PROMPT[:60], max_tokens=500))
    sim.drain()
    end = sim.events[alone][-1]
    assert isinstance(end, Failed)
    assert isinstance(end.error, OutOfPagesError)
    sim.scheduler.check()
    sim.max_len = 120
    assert isinstance(sim.events[_run(sim, request(PROMPT[:60]))][-1], Finished)


def _run(sim: Simulation, one: Request) -> Sequence:
    sequence = sim.add(one)
    sim.drain()
    return sequence


@pytest.mark.parametrize("max_tokens", [10, 40])
def test_when_to_come_back_follows_from_how_fast_requests_end(max_tokens):
    sim = simulate(max_num_seqs=1, max_waiting=4)
    for number in range(4):
        sim.add(request((50 + number,) * 5, max_tokens))
    sim.drain()
    sim.now += 10_000  # with nothing to do, which is no measure of how fast anything is
    for number in range(4):
        sim.add(request((70 + number,) * 5, max_tokens))
    with pytest.raises(QueueFullError) as caught:
        sim.add(request((90,), max_tokens))
    assert 0.7 * max_tokens <= caught.value.retry_after_s <= 1.3 * max_tokens + 2
