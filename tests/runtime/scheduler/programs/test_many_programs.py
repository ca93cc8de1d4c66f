"""Programs that never say that they have ended: the oldest are forgotten, and nothing else."""

from __future__ import annotations

import pytest

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.scheduler import SchedulerConfig
from ramet.runtime.testing.simulation import Simulation

ONE_TOKEN = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)


@pytest.mark.parametrize("tool", ["", "search"])
@pytest.mark.parametrize("policy", ["program-aware", "fcfs"])
@pytest.mark.parametrize("pause_s", [0.0, 60.0])
def test_more_programs_than_are_remembered(policy: str, tool: str, pause_s: float) -> None:
    sim = Simulation(SchedulerConfig(policy=policy), num_pages=64, page_size=4)
    for number in range(1_100):
        hint = ProgramHint(program_id=f"p{number}", node_id="a", tool=tool, tokens_to_come=4)
        prompt = (20 + number % 60, 20 + number // 60, 30, 31, 32)
        sim.add(Request(prompt_token_ids=prompt, params=ONE_TOKEN, hint=hint))
        sim.drain()
        sim.now += pause_s
    sim.step()
    sim.scheduler.check()
    programs = sim.scheduler._programs
    assert 1 <= len(programs) <= 1_024 + len(programs.admitted)
    again = sim.add(Request(prompt_token_ids=(25, 26), params=ONE_TOKEN))
    sim.drain()
    assert again.num_output == 1


def test_idle_time_does_not_change_the_rate() -> None:
    sim = Simulation(SchedulerConfig(), num_pages=64, page_size=4)
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    throughput = sim.scheduler._admission.throughput
    taken = []
    for _ in range(40):
        sim.add(Request(prompt_token_ids=(30, 31), params=params))
        sim.drain()
        taken.append(throughput.seconds(100))
        sim.now += 1_000.0
    assert taken[-1] == pytest.approx(taken[0])
