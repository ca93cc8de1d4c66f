"""A program that needs more than the page pool runs alone, rather than never."""

from __future__ import annotations

from ramet.runtime.api.events import Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.scheduler import SchedulerConfig
from ramet.runtime.testing.simulation import Simulation


def test_it_starts_once_the_last_that_rested_has_made_way():
    sim = Simulation(SchedulerConfig(policy="program-aware"), num_pages=12, page_size=8)
    params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

    def add(program_id: str, first: int, **hint):
        told = ProgramHint(program_id=program_id, node_id="0", **hint)
        return sim.add(
            Request(prompt_token_ids=tuple(range(first, first + 20)), params=params, hint=told)
        )

    one_token = SamplingParams(temperature=0, max_tokens=1)
    for first in range(20, 220, 10):  # shows that prefixes are quickly computed again
        sim.add(Request(prompt_token_ids=(first,) * 60, params=one_token))
        sim.drain()
    add("rests", 40, remaining_uses=1, steps_to_next_use=0)
    sim.drain()
    large = add("large", 80, remaining_uses=3, tokens_to_come=400)
    for _ in range(100):
        sim.step()
        sim.scheduler.check()
    assert isinstance(sim.events[large][-1], Finished)
