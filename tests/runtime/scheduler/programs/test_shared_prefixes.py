"""A run that is done with its prefix leaves what other runs of its program begin with."""

from __future__ import annotations

import pytest

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.scheduler import SchedulerConfig, Sequence
from ramet.runtime.testing.simulation import Simulation

HEAD = tuple(range(40, 80))


def run(sim: Simulation, number: int, program: str) -> Sequence:
    """One run of one call, done with its prefix when it ends."""
    hint = ProgramHint(program_id=f"run-{number}", node_id="0", program=program, remaining_uses=0)
    own = tuple(100 + (7 * number + i) % 90 for i in range(20))
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    sequence = sim.add(Request(prompt_token_ids=HEAD + own, params=params, hint=hint))
    sim.drain()
    return sequence


def cached(sim: Simulation, sequence: Sequence) -> int:
    return sim.cache.match(sequence.known).matched_len


@pytest.mark.parametrize("policy", ["fcfs", "program-aware"])
def test_what_a_program_s_runs_share_outlasts_each_of_them(policy):
    config = SchedulerConfig(max_num_seqs=2, policy=policy)
    sim = Simulation(config, num_pages=32, page_size=4)
    first, second = run(sim, 0, "p"), run(sim, 1, "p")
    sim.cache.evict(7)  # the first's output, and what is the second's own
    assert cached(sim, second) == len(HEAD)
    assert cached(sim, first) == len(HEAD) + 20  # nobody could know what of it was its own
    unnamed = run(sim, 2, "")
    assert unnamed.cached_len >= len(HEAD)


def test_a_program_without_a_name_is_taken_at_its_word():
    sim = Simulation(SchedulerConfig(max_num_seqs=2), num_pages=32, page_size=4)
    only = run(sim, 0, "")
    sim.cache.evict(1)
    other = Request(prompt_token_ids=tuple(range(200, 240)), params=only.params)
    sim.add(other)
    sim.drain()
    sim.cache.evict(15)
    assert cached(sim, only) == 0
