"""Targets in the schedule: order by slack, refusal of what can't be met, sizes of steps."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.batch import Batch
from ramet.runtime.api.errors import InvalidParameterError, TargetUnreachableError
from ramet.runtime.api.events import Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.scheduler import SchedulerConfig, SequenceState
from ramet.runtime.testing.simulation import Simulation


def step_s(batch: Batch) -> float:
    return 0.1 + 0.01 * batch.num_tokens


def request(first: int = 40, size: int = 12, max_tokens: int = 8, **kwargs) -> Request:
    return Request(
        prompt_token_ids=tuple(40 + (first + index) % 150 for index in range(size)),
        params=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True),
        **kwargs,
    )


def simulate(**config) -> Simulation:
    limits = {"max_num_seqs": 1, "max_tokens_per_step": 64, "policy": "slack", "max_draft_len": 0}
    return Simulation(SchedulerConfig(**(limits | config)), 400, 4, step_s=step_s)


def warm(sim: Simulation) -> None:
    """Lets the scheduler measure steps and starts."""
    for index in range(10):
        sim.add(request(3 * index, 4, max_tokens=4))
    sim.drain()


def end_of(sim: Simulation, sequence) -> Finished | Failed:
    last = sim.events[sequence][-1]
    assert isinstance(last, Finished | Failed)
    return last


def test_least_slack_goes_first():
    sim = simulate()
    sim.add(request(0, max_tokens=2))
    sim.step()
    patient = sim.add(request(30, ttft_target_s=20.0))
    aimless = sim.add(request(60))
    urgent = sim.add(request(90, ttft_target_s=5.0))
    sim.drain()
    firsts = [each.first_token_time for each in (urgent, patient, aimless)]
    assert firsts == sorted(firsts)


def test_a_deadline_counts_less_a_likely_output():
    sim = simulate()
    warm(sim)
    sim.add(request(0, max_tokens=10))
    sim.step()
    by_target = sim.add(request(30, ttft_target_s=10.0))
    by_deadline = sim.add(request(60, max_tokens=60, deadline_s=15.0))
    sim.drain()
    assert by_deadline.first_token_time < by_target.first_token_time


def test_what_is_late_goes_after_what_is_not_and_ends():
    sim = simulate()
    warm(sim)
    sim.add(request(0, max_tokens=20))
    sim.step()
    late = sim.add(request(30, ttft_target_s=1.0))
    timely = sim.add(request(60, ttft_target_s=8.0))
    sim.drain()
    assert timely.first_token_time < late.first_token_time
    assert isinstance(end_of(sim, late), Finished)


def test_what_is_late_is_not_starved():
    sim = simulate(max_wait_s=20.0)
    warm(sim)
    sim.add(request(0, max_tokens=20))
    sim.step()
    late = sim.add(request(30, ttft_target_s=0.5))
    for index in range(200):
        if late.state is SequenceState.FINISHED:
            break
        sim.add(request(index, 4, max_tokens=4, ttft_target_s=8.0))
        sim.step()
    assert isinstance(end_of(sim, late), Finished)


def test_what_cannot_be_met_is_refused_before_its_target_passes():
    sim = simulate(shed_late=True)
    warm(sim)
    sim.add(request(0, max_tokens=40))
    sim.step()
    hopeless = sim.add(request(30, ttft_target_s=2.0))
    while hopeless.state is not SequenceState.FINISHED:
        sim.step()
    refusal = end_of(sim, hopeless)
    assert isinstance(refusal, Failed)
    assert isinstance(refusal.error, TargetUnreachableError)
    assert refusal.error.retry_after_s >= 1.0
    assert refusal.error.status == 429
    assert sim.now <= hopeless.submit_time + 2.0
    sim.drain()


def test_a_long_queue_is_refused_on_arrival():
    sim = simulate(shed_late=True)
    warm(sim)
    for index in range(20):
        sim.add(request(5 * index, max_tokens=20, ttft_target_s=300.0))
    sim.step()
    for index in range(12):  # the rate of starts is measured while they wait
        sim.add(request(5 * index + 2, max_tokens=20, ttft_target_s=300.0))
    for _ in range(200):
        sim.step()
    behind = sim.add(request(140, ttft_target_s=400.0))
    assert behind.state is SequenceState.WAITING
    soon = sim.add(request(145, priority=-1, ttft_target_s=3.0))
    assert isinstance(end_of(sim, soon), Failed)


def test_other_tenants_queues_refuse_nothing_on_arrival():
    sim = simulate(shed_late=True)
    warm(sim)
    for index in range(40):
        sim.add(request(5 * index, max_tokens=20, tenant="heavy"))
    sim.step()
    light = sim.add(request(141, ttft_target_s=5.0, tenant="light"))
    assert light.state is SequenceState.WAITING


def test_a_cached_prefix_counts_as_read():
    sim = simulate(shed_late=True)
    prompt = request(0, 400, max_tokens=1)
    sim.add(prompt)
    sim.drain()
    cold = sim.add(request(7, 400, max_tokens=1, ttft_target_s=1.0, cache_salt="other"))
    sim.drain()
    cached = sim.add(request(0, 400, max_tokens=1, ttft_target_s=1.0))
    sim.drain()
    assert isinstance(end_of(sim, cached), Finished)
    assert isinstance(end_of(sim, cold), Failed)


def longest_step(*, tpot_target_s: float | None) -> float:
    """The longest step while a long prompt is read next to a stream."""
    sim = simulate(max_num_seqs=2)
    warm(sim)
    stream = sim.add(request(0, max_tokens=60, tpot_target_s=tpot_target_s))
    while stream.num_output < 2:
        sim.step()
    long = sim.add(request(60, 200, max_tokens=1))
    longest = 0.0
    while long.state is not SequenceState.FINISHED:
        before = sim.now
        sim.step()
        longest = max(longest, sim.now - before)
    sim.drain()
    return longest


def test_prefill_chunks_fit_the_running_streams_tpot():
    assert longest_step(tpot_target_s=0.3) < 0.6 * longest_step(tpot_target_s=None)


def test_a_tpot_target_that_cannot_be_met_slows_nobody():
    assert longest_step(tpot_target_s=1e-6) == longest_step(tpot_target_s=None)


def test_shedding_needs_the_policy():
    with pytest.raises(InvalidParameterError, match="shed_late needs the policy slack"):
        SchedulerConfig(shed_late=True)


arrivals = st.lists(
    st.tuples(
        st.integers(0, 5),  # steps before it
        st.integers(1, 60),  # prompt
        st.integers(1, 12),  # output
        st.sampled_from([None, 0.01, 1.0, 10.0]),  # TTFT target
        st.sampled_from([None, 0.01, 0.2, 2.0]),  # TPOT target
        st.sampled_from([None, 5.0, 50.0]),  # deadline
        st.sampled_from(["", "a", "b"]),  # tenant
        st.integers(-1, 1),  # priority
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(arrivals, st.booleans(), st.sampled_from([1, 3]), st.sampled_from([8, 64]))
def test_any_load_ends_and_only_targets_are_refused(load, shed_late, num_seqs, num_tokens):
    sim = simulate(shed_late=shed_late, max_num_seqs=num_seqs, max_tokens_per_step=num_tokens)
    sequences = []
    for index, (steps, size, output, ttft, tpot, deadline, tenant, priority) in enumerate(load):
        for _ in range(steps):
            sim.step()
            sim.scheduler.check()
        targets = {"ttft_target_s": ttft, "tpot_target_s": tpot, "deadline_s": deadline}
        made = request(7 * index, size, output, tenant=tenant, priority=priority, **targets)
        sequences.append(sim.add(made))
    sim.drain()
    sim.scheduler.check()
    for sequence in sequences:
        events = sim.events[sequence]
        assert sum(isinstance(event, Finished | Failed) for event in events) == 1
        end = end_of(sim, sequence)
        if isinstance(end, Failed) and isinstance(end.error, TargetUnreachableError):
            made = sequence.request
            assert shed_late
            assert made.ttft_target_s is not None or made.deadline_s is not None
            assert not any(isinstance(event, TextDelta) for event in events)


@settings(max_examples=60, deadline=None)
@given(arrivals, st.sampled_from([2, 4]), st.sampled_from([16, 64]))
def test_steps_keep_their_bounds_and_prompts_their_share(load, num_seqs, num_tokens):
    sim = simulate(max_num_seqs=num_seqs, max_tokens_per_step=num_tokens)
    warm(sim)
    for index, (steps, size, output, ttft, tpot, *_) in enumerate(load):
        for _ in range(steps):
            most = sim.scheduler._levels.step_tokens(sim.now)
            running = sim.scheduler.num_running
            assert min(running + num_tokens // 8, num_tokens) <= most <= num_tokens
            sim.step()
        sim.add(request(7 * index, size, output, ttft_target_s=ttft, tpot_target_s=tpot))
    sim.drain()
