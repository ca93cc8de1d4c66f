"""Order, fairness, deadlines, queue limits and pauses, under simulated time."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import DeadlineExceededError, InvalidParameterError, QueueFullError
from ramet.runtime.api.events import Failed, Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.scheduler import SchedulerConfig, SequenceState
from ramet.runtime.scheduler.queue.config import POLICY_NAMES
from ramet.runtime.scheduler.queue.policy import POLICIES
from ramet.runtime.testing.simulation import Simulation


def request(first: int = 40, size: int = 12, max_tokens: int = 8, **kwargs) -> Request:
    return Request(
        prompt_token_ids=tuple(range(first, first + size)),
        params=SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True),
        **kwargs,
    )


def simulate(num_pages: int = 200, page_size: int = 4, **config) -> Simulation:
    limits = {"max_num_seqs": 1, "max_tokens_per_step": 32, "max_logits_per_step": 32}
    return Simulation(SchedulerConfig(**(limits | config)), num_pages, page_size)


def ends_in_order(sim: Simulation, sequences) -> list[int]:
    """Indices of the sequences in the order in which they end."""
    order: list[int] = []
    while len(order) < len(sequences):
        sim.step()
        for index, sequence in enumerate(sequences):
            if sequence.state is SequenceState.FINISHED and index not in order:
                order.append(index)
    return order


def test_first_come_first_served():
    sim = simulate()
    sequences = [sim.add(request(40 + i, max_tokens=9 - i)) for i in range(4)]
    assert ends_in_order(sim, sequences) == [0, 1, 2, 3]


def test_priority_goes_first():
    sim = simulate()
    sequences = [sim.add(request(40 + i, priority=i)) for i in range(3)]
    assert ends_in_order(sim, sequences) == [2, 1, 0]


def test_a_higher_priority_takes_the_place_of_a_lower_one():
    sim = simulate(max_num_seqs=2)
    low = [sim.add(request(40 + 20 * i, max_tokens=30)) for i in range(2)]
    for _ in range(5):
        sim.step()
    urgent = sim.add(request(100, max_tokens=4, priority=5))
    for _ in range(6):
        sim.step()
        sim.scheduler.check()
    assert urgent.state is SequenceState.FINISHED
    sim.drain()
    assert sim.scheduler.stats.num_preemptions == 1
    for sequence in low:
        prompt = sequence.request.prompt_token_ids
        assert sequence.output.tolist() == sim.runner.continuation(prompt, 30)


def test_running_for_long_is_not_waiting_for_long():
    sim = simulate(max_wait_s=10.0)
    low = sim.add(request(40, max_tokens=100))
    for _ in range(30):
        sim.step()
    urgent = sim.add(request(100, max_tokens=4, priority=1))
    for _ in range(6):
        sim.step()
    assert urgent.state is SequenceState.FINISHED
    assert low.state is not SequenceState.FINISHED
    sim.drain()
    assert low.output.tolist() == sim.runner.continuation(low.request.prompt_token_ids, 100)


def test_who_is_preempted_over_and_over_is_overdue_in_the_end():
    sim = simulate(max_wait_s=20.0)
    low = sim.add(request(40, max_tokens=30))
    for number in range(400):
        if low.state is SequenceState.FINISHED:
            break
        if number % 4 == 0:
            sim.add(request(60 + number % 40, max_tokens=3, priority=1))
        sim.step()
        sim.scheduler.check()
    assert low.state is SequenceState.FINISHED
    assert low.num_preemptions > 0


def test_a_higher_priority_gets_pages_too():
    sim = simulate(num_pages=12, max_num_seqs=4)
    sim.add(request(40, 30, max_tokens=10))
    for _ in range(3):
        sim.step()
    urgent = sim.add(request(100, 20, max_tokens=4, priority=1))
    for _ in range(8):
        sim.step()
        sim.scheduler.check()
    assert urgent.state is SequenceState.FINISHED
    sim.drain()


def test_shortest_remaining_first():
    sim = simulate(policy="shortest-remaining")
    sequences = [sim.add(request(40 + i, max_tokens=9 - 2 * i)) for i in range(4)]
    assert ends_in_order(sim, sequences) == [3, 2, 1, 0]


def test_longest_cached_prefix_first():
    sim = simulate(policy="longest-prefix")
    sim.add(request(70, 20))
    sim.drain()
    sequences = [sim.add(request(40, 20)), sim.add(request(70, 20))]
    assert ends_in_order(sim, sequences) == [1, 0]


def test_program_aware_serves_the_least_served_program_and_its_critical_path():
    sim = simulate(policy="program-aware")
    for _ in range(4):
        sim.add(request(40, 20, hint=ProgramHint(program_id="heavy")))
    sim.drain()
    sequences = [
        sim.add(request(50, hint=ProgramHint(program_id="heavy"))),
        sim.add(request(60, hint=ProgramHint(program_id="light", critical_path_weight=0.1))),
        sim.add(request(70, hint=ProgramHint(program_id="light", critical_path_weight=0.9))),
    ]
    assert ends_in_order(sim, sequences) == [2, 1, 0]


@pytest.mark.parametrize("policy", ["shortest-remaining", "program-aware", "longest-prefix"])
def test_no_request_waits_forever(policy):
    sim = simulate(policy=policy, max_wait_s=100.0)
    patient = sim.add(request(40, 20, max_tokens=20, hint=ProgramHint(program_id="old")))
    patient_events = sim.events[patient]
    for i in range(400):  # a stream of arrivals that the policy prefers
        sim.add(request(100 + i % 50, 2, max_tokens=1, priority=1))
        sim.step()
        if patient_events and isinstance(patient_events[-1], Finished):
            return
    raise AssertionError("it waits for ever")


def test_tenants_share_by_weight():
    sim = simulate(max_num_seqs=1, tenant_weights={"gold": 3.0})
    sequences = []
    for i in range(40):
        tenant = "gold" if i % 2 else "tin"
        sequences.append(sim.add(request(20 + 5 * i, 4, max_tokens=4, tenant=tenant)))
    order = ends_in_order(sim, sequences)
    gold = sum(index % 2 for index in order[:16])
    assert 11 <= gold <= 13


def test_new_weights_count_for_tokens_to_come():
    sim = simulate(max_num_seqs=1, tenant_weights={"tin": 3.0})
    sim.scheduler.set_tenant_weights({"gold": 3.0})
    sequences = []
    for i in range(40):
        tenant = "gold" if i % 2 else "tin"
        sequences.append(sim.add(request(20 + 5 * i, 4, max_tokens=4, tenant=tenant)))
    order = ends_in_order(sim, sequences)
    assert 11 <= sum(index % 2 for index in order[:16]) <= 13


def test_a_flood_by_one_tenant_does_not_delay_another():
    sim = simulate()
    for i in range(30):
        sim.add(request(20 + 3 * i, tenant="flood"))
    for _ in range(20):
        sim.step()
    guest = sim.add(request(200, tenant="guest"))
    for _ in range(25):
        sim.step()
    assert guest.state is SequenceState.FINISHED


def test_deadlines_end_requests_wherever_they_are():
    sim = simulate()
    running = sim.add(request(40, max_tokens=50, deadline_s=5.0))
    waiting = sim.add(request(60, deadline_s=5.0))
    for _ in range(7):
        sim.step()
    for sequence in (running, waiting):
        last = sim.events[sequence][-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, DeadlineExceededError)
    sim.scheduler.check()


def test_a_full_queue_says_when_to_come_back():
    sim = simulate(max_waiting=3)
    for _ in range(3):
        sim.add(request())
    sim.drain()
    for _ in range(3):
        sim.add(request())
    with pytest.raises(QueueFullError) as caught:
        sim.add(request())
    assert 1 <= caught.value.retry_after_s <= 60


def test_goodput_counts_requests_that_met_their_targets():
    sim = simulate()
    sim.add(request(40, ttft_target_s=2.0, tpot_target_s=1.5))
    sim.add(request(60, ttft_target_s=2.0))  # it waits behind the first
    sim.drain()
    assert sim.scheduler.stats.num_good == 1


def test_a_pause_keeps_its_pages_as_long_as_the_tool_usually_takes():
    sim = simulate()

    def call(first: int, tool: str = "search", **kwargs):
        hint = ProgramHint(program_id=f"p{first}", tool=tool, **kwargs)
        sequence = sim.add(request(first, hint=hint))
        sim.drain()
        return sequence

    for first in (40, 60, 80):  # teaches that the tool takes 20 seconds
        sequence = call(first)
        sim.now += 20
        turn = (*sequence.known.tolist(), 9, 9)
        sim.add(
            Request(
                prompt_token_ids=turn,
                params=sequence.params,
                hint=ProgramHint(program_id=f"p{first}"),
            )
        )
        sim.drain()
    sequence = call(100)
    known = sequence.known[: sequence.num_tokens - 1]
    sim.now += 25
    sim.step()
    sim.cache.clear()
    assert sim.cache.match(known).matched_len == len(known)
    sim.now += 10
    sim.step()
    sim.cache.clear()
    assert sim.cache.match(known).matched_len == 0


def test_pausing_programs_give_way_to_running_ones():
    sim = simulate(num_pages=12)
    sim.add(request(40, 20, max_tokens=8, hint=ProgramHint(program_id="p", tool="t")))
    sim.drain()
    sequence = sim.add(request(80, 20, max_tokens=28))
    sim.drain()
    assert isinstance(sim.events[sequence][-1], Finished)


def test_settings_that_cannot_work_are_refused():
    with pytest.raises(InvalidParameterError, match="longest-prefix"):
        simulate(policy="best")
    with pytest.raises(InvalidParameterError, match="max_num_seqs"):
        SchedulerConfig(max_num_seqs=64, max_tokens_per_step=32)
    with pytest.raises(InvalidParameterError, match="weights"):
        SchedulerConfig(tenant_weights={"a": 0})


def test_every_policy_can_be_configured() -> None:
    assert sorted(POLICIES) == sorted(POLICY_NAMES)
