"""Programs whose working sets don't fit in together, under simulated time."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Generator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ramet.runtime.api.events import Finished
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import AHEAD, HintUpdate, ProgramHint, Request
from ramet.runtime.scheduler import SchedulerConfig, Sequence, SequenceState
from ramet.runtime.testing.simulation import Simulation

RULES = tuple(i % 90 + 1 for i in range(48))
OUTPUT = 6

Strand = Generator[Request | float, Sequence, None]
"""Yields requests, and gets back what has become of each; or seconds to wait."""


def text(seed: str, size: int) -> tuple[int, ...]:
    """Tokens that no other text has."""
    rng = random.Random(seed)
    return tuple(rng.randrange(100, 250) for _ in range(size))


class World:
    """Programs on a simulated scheduler, each begun as soon as fewer than ``width`` are at work."""

    def __init__(
        self,
        num_pages: int,
        *,
        policy: str = "program-aware",
        hints: bool = True,
        checks: bool = False,
        says_the_end: bool = True,
    ):
        config = SchedulerConfig(
            max_num_seqs=32, max_tokens_per_step=64, max_logits_per_step=64, policy=policy
        )
        self.sim = Simulation(config, num_pages, page_size=4)
        self.hints, self.checks, self.says_the_end = hints, checks, says_the_end
        self.strands: dict[str, list[tuple[Strand, Sequence | float]]] = {}
        self.ends: dict[str, float] = {}

    def call(self, name: str, tokens: tuple[int, ...], node: str, **hint: object) -> Request:
        return Request(
            prompt_token_ids=tokens,
            params=SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True),
            hint=ProgramHint(program_id=name, node_id=node, program=name.split("-")[0], **hint)
            if self.hints
            else None,
        )

    def spawn(self, name: str, strand: Strand) -> None:
        self._go_on(name, strand, None)

    def _go_on(self, name: str, strand: Strand, sent: Sequence | None) -> None:
        try:
            wish = next(strand) if sent is None else strand.send(sent)
        except StopIteration:
            return
        found = self.sim.now + wish if isinstance(wish, float) else self.sim.add(wish)
        self.strands.setdefault(name, []).append((strand, found))

    def turn(self) -> None:
        """One step, and all that becomes possible by it."""
        self.sim.step()
        if self.checks:
            self.sim.scheduler.check()
        for name, strands in list(self.strands.items()):
            for entry in list(strands):
                strand, wait = entry
                if isinstance(wait, float):
                    if self.sim.now >= wait:
                        strands.remove(entry)
                        self._go_on(name, strand, None)
                elif wait.state is SequenceState.FINISHED:
                    assert isinstance(self.sim.events[wait][-1], Finished)
                    strands.remove(entry)
                    self._go_on(name, strand, wait)
            if not strands:
                del self.strands[name]
                self.ends[name] = self.sim.now
                if self.hints and self.says_the_end:
                    self.sim.scheduler.update_hint(HintUpdate(program_id=name, has_ended=True))

    def run(self, program: Callable[[World, str], None], names: list[str], width: int) -> int:
        """Runs them all and returns the number of tokens computed."""
        left, before = list(names), self.sim.scheduler.stats.num_computed_tokens
        for _ in range(20_000):
            while left and len(self.strands) < width:
                program(self, left.pop(0))
            if not self.strands:
                return self.sim.scheduler.stats.num_computed_tokens - before
            self.turn()
        raise AssertionError(f"no end: {list(self.strands)}")


def known(sequence: Sequence) -> tuple[int, ...]:
    return tuple(sequence.known.tolist())


def fork(world: World, name: str) -> None:
    """Four branches of two calls each after one long prompt."""
    start, ask = RULES + text(name, 60), 8
    for branch in range(4):

        def strand(branch: int = branch) -> Strand:
            to_come = (3 - branch) * (ask + OUTPUT) + 4 * (ask + OUTPUT)
            first = yield world.call(
                name,
                start + text(f"{name} {branch}", ask),
                f"{branch}.0",
                remaining_uses=1,
                steps_to_next_use=0,
                tokens_to_come=to_come,
            )
            yield world.call(
                name,
                known(first) + text(f"{name} {branch} more", ask),
                f"{branch}.1",
                extends=f"{branch}.0",
                remaining_uses=0,
                tokens_to_come=0,
            )

        world.spawn(name, strand())


def tree(world: World, name: str) -> None:
    """Two levels of three proposals, each judged; one is gone on from. Nothing is known of the
    second level beforehand."""

    def branch(
        start: tuple[int, ...], place: str, extends: str, level: int, done: list[Sequence]
    ) -> Strand:
        idea = yield world.call(
            name, start + text(f"{name} {place}", 6), f"{place}.0", extends=extends,
            remaining_uses=1, steps_to_next_use=0, tokens_to_come=3 * (4 + OUTPUT),
        )  # fmt: skip
        good = yield world.call(
            name, known(idea) + text(f"{name} {place} good?", 4), f"{place}.1",
            extends=f"{place}.0", tokens_to_come=0,
        )  # fmt: skip
        done.append(good)
        if len(done) == 3 and level == 0:
            second: list[Sequence] = []
            for index in range(3):
                below = f"{place}.1.{index}"
                world.spawn(name, branch(known(good), below, f"{place}.1", 1, second))

    first: list[Sequence] = []
    for index in range(3):
        world.spawn(name, branch(RULES + text(name, 60), str(index), "", 0, first))


def tools(world: World, name: str) -> None:
    """Three rounds of a call, a slow tool, and the call that goes on from its answer."""

    def strand() -> Strand:
        tokens, extends = RULES + text(name, 60), ""
        for index in range(6):
            tokens += text(f"{name} {index}", 10)
            done = yield world.call(
                name, tokens, str(index), extends=extends, remaining_uses=5 - index,
                steps_to_next_use=0, tool="" if index % 2 else "shelf",
                tokens_to_come=(5 - index) * (10 + OUTPUT),
            )  # fmt: skip
            tokens, extends = known(done), str(index)
            if index % 2 == 0:
                yield 2.0

    world.spawn(name, strand())


PROGRAMS = {"fork": fork, "tree": tree, "tools": tools}


def names(kind: str, count: int) -> list[str]:
    return [f"{kind}-{index}" for index in range(count)]


def oracle(kind: str, count: int) -> int:
    """Tokens that must be computed at the least: one after the other, and nothing is evicted."""
    return World(4000, policy="fcfs", hints=False).run(PROGRAMS[kind], names(kind, count), 1)


@pytest.mark.parametrize("kind", PROGRAMS)
def test_programs_that_need_twice_the_pool_compute_hardly_more_than_they_must(kind):
    num_pages = 150  # one program takes 60 to 75 pages at its most; eight at once need twice this
    least = oracle(kind, 16)
    world = World(num_pages, checks=True)
    computed = world.run(PROGRAMS[kind], names(kind, 16), 8)
    thrashing = World(num_pages, policy="fcfs", hints=False)
    assert computed <= 1.05 * least
    assert thrashing.run(PROGRAMS[kind], names(kind, 16), 8) > 1.5 * least
    world.sim.cache.clear()
    assert world.sim.cache.pool.num_free == num_pages


@pytest.mark.parametrize("kind", PROGRAMS)
def test_where_memory_suffices_programs_end_as_if_there_were_no_admission(kind):
    alone = World(4000)
    alone.run(PROGRAMS[kind], names(kind, 8), 1)
    num_pages = int(1.4 * alone.sim.cache.num_cached)
    worlds = [World(num_pages), World(num_pages, policy="fcfs")]
    computed = [world.run(PROGRAMS[kind], names(kind, 8), 8) for world in worlds]
    assert computed[0] <= computed[1]
    assert worlds[0].sim.now <= worlds[1].sim.now


@pytest.mark.parametrize("num_pages", [52, 56])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_that_is_larger_than_the_pool_ends(kind, num_pages):
    world = World(num_pages, checks=True)
    world.run(PROGRAMS[kind], names(kind, 6), 4)
    assert len(world.ends) == 6


def test_no_program_is_overtaken_forever():
    """Small programs keep coming, and the large one that came first doesn't fit in beside them."""

    def small(world: World, name: str) -> None:
        def strand() -> Strand:
            yield world.call(name, text(name, 20), "0", remaining_uses=0)

        world.spawn(name, strand())

    def large(world: World, name: str) -> None:
        def strand() -> Strand:
            yield world.call(name, text(name, 300), "0", remaining_uses=0)

        world.spawn(name, strand())

    world = World(90, checks=True)
    for index in range(6):
        small(world, f"small-{index}")
    world.turn()
    large(world, "large")
    for index in range(6, 200):
        small(world, f"small-{index}")
        world.turn()
        if "large" in world.ends:
            break
    earlier = [name for name in world.ends if name != "large"]
    assert len(earlier) <= 6 + 8 + 8  # those before it, those that pass it, those already running


def test_programs_that_fit_start_before_one_that_does_not():
    def sized(size: int) -> Callable[[World, str], None]:
        def strand(world: World, name: str) -> Strand:
            yield world.call(name, text(name, size), "0", remaining_uses=0)

        return lambda world, name: world.spawn(name, strand(world, name))

    world = World(100)
    sized(200)(world, "first")
    world.turn()
    sized(300)(world, "too large")
    sized(80)(world, "small")
    for _ in range(5):
        world.turn()
    assert world.sim.scheduler.num_running == 2
    assert world.sim.scheduler.num_waiting == 1


def test_a_program_learns_from_its_runs_what_it_never_says():
    """``tree`` says nothing of its second level: the next runs are admitted by what one took."""
    world = World(150)
    world.run(tree, ["tree-0"], 1)
    preemptions = world.sim.scheduler.stats.num_preemptions
    world.run(tree, [f"tree-{index}" for index in range(1, 9)], 8)
    assert world.sim.scheduler.stats.num_preemptions == preemptions


def test_an_update_releases_prefixes_that_no_call_extends():
    world = World(60)
    hint: dict[str, object] = {"remaining_uses": None}
    first = world.sim.add(world.call("p", text("p", 40), "0", **hint))
    world.sim.drain()
    assert world.sim.cache.num_locked
    world.sim.scheduler.update_hint(HintUpdate(program_id="q", has_ended=True))  # another's
    world.sim.scheduler.update_hint(HintUpdate(program_id="p", cache_salt="x", unneeded=("0",)))
    assert world.sim.cache.num_locked
    world.sim.scheduler.update_hint(HintUpdate(program_id="p", unneeded=("7", "0")))
    assert not world.sim.cache.num_locked
    running = world.sim.add(world.call("p", text("p2", 40), "1", **hint))
    world.sim.step()
    world.sim.scheduler.update_hint(HintUpdate(program_id="p", unneeded=("1",)))
    world.sim.drain()
    assert not world.sim.cache.num_locked
    world.sim.scheduler.check()
    assert first.state is running.state is SequenceState.FINISHED


def test_what_was_computed_ahead_is_held_until_its_call_has_it():
    world = World(60)
    start = text("p", 40)
    world.sim.add(world.call("p", start, f"1{AHEAD}", remaining_uses=1, tokens_to_come=20))
    world.sim.drain()
    world.sim.cache.clear()
    assert world.sim.cache.match(start).matched_len == len(start)
    world.sim.add(world.call("p", start + text("q", 9), "1", remaining_uses=0))
    world.sim.drain()
    assert not world.sim.cache.num_locked


def test_of_texts_scored_after_one_prompt_each_finds_it():
    world = World(60)
    start = text("p", 40)
    scored = [
        Request(
            prompt_token_ids=(*start, token),
            params=SamplingParams(max_tokens=0, prompt_logprobs=0),
            score_from=len(start),
            hint=ProgramHint(program_id="p", node_id="0"),
        )
        for token in (7, 8)
    ]
    world.sim.add(scored[0])
    world.sim.drain()
    world.sim.add(scored[1])
    world.sim.step()
    world.sim.cache.clear()
    assert world.sim.cache.match((*start, 7)).matched_len >= len(start)
    world.sim.drain()
    world.sim.scheduler.update_hint(HintUpdate(program_id="p", has_ended=True))
    assert not world.sim.cache.num_locked


def test_a_program_that_vanishes_holds_nothing_forever():
    world = World(60)
    world.sim.add(world.call("p", text("p", 40), "0", remaining_uses=3, tokens_to_come=500))
    world.sim.drain()
    assert world.sim.cache.num_locked
    world.sim.now += 100
    world.sim.step()
    assert not world.sim.cache.num_locked
    world.sim.add(world.call("q", text("q", 200), "0"))
    world.sim.drain()


@st.composite
def strands(draw: st.DrawFn) -> list[list[tuple[int, int, dict[str, object], float]]]:
    """A program's strands: of each call its new tokens, how it goes on, what its hint claims."""
    claims = st.fixed_dictionaries(
        {
            "remaining_uses": st.sampled_from([None, 0, 1, 5]),
            "steps_to_next_use": st.sampled_from([None, 0, 3]),
            "tokens_to_come": st.sampled_from([0, 20, 1000]),
            "critical_path_weight": st.sampled_from([0.0, 0.9]),
            "tool": st.sampled_from(["", "t"]),
        }
    )
    call = st.tuples(
        st.integers(1, 60), st.sampled_from([0, 1, 2]), claims, st.sampled_from([0.0, 0.0, 9.0])
    )
    return draw(st.lists(st.lists(call, min_size=1, max_size=4), min_size=1, max_size=4))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    programs=st.lists(strands(), min_size=1, max_size=8),
    num_pages=st.sampled_from([40, 70, 150]),
    plain=st.lists(st.integers(1, 100), max_size=4),
    says_the_end=st.booleans(),
)
def test_every_program_ends_under_any_hints(programs, num_pages, plain, says_the_end):
    world = World(num_pages, checks=True, says_the_end=says_the_end)

    def strand(name: str, number: int, calls: list[tuple[int, int, dict[str, object], float]]):
        start = tokens = text(name, 12)
        extends = ""
        for index, (size, how, claims, pause) in enumerate(calls):
            if how == 0:  # from the program's beginning again
                tokens, extends = start, ""
            node = f"{number}.{index}"
            told = extends if how < 2 else "nowhere"
            prompt = (*tokens, *text(f"{name} {node}", size))[:140]
            done = yield world.call(name, prompt, node, extends=told, **claims)
            tokens, extends = known(done), node
            if pause:
                yield pause

    for index, program in enumerate(programs):
        for number, calls in enumerate(program):
            world.spawn(f"p-{index}", strand(f"p-{index}", number, calls))
    for index, size in enumerate(plain):
        world.sim.add(
            Request(
                prompt_token_ids=text(f"plain {index}", size),
                params=SamplingParams(temperature=0, max_tokens=OUTPUT, ignore_eos=True),
            )
        )
    for _ in range(5_000):
        if not world.strands and world.sim.scheduler.idle:
            break
        world.turn()
    else:
        raise AssertionError("no end")
    world.sim.now += 1e6
    world.sim.step()
    world.sim.cache.clear()
    assert world.sim.cache.pool.num_free == num_pages


def test_of_waiting_programs_the_higher_priority_goes_first_however_many_came_before():
    world = World(60)

    def add(name: str, size: int, priority: int = 0) -> Sequence:
        made = world.call(name, text(name, size), "0", remaining_uses=0)
        return world.sim.add(dataclasses.replace(made, priority=priority))

    add("running", 150)
    world.sim.step()
    rest = [add(f"p-{index}", 120) for index in range(400)]
    urgent = add("urgent", 120, priority=1)
    for _ in range(25):
        world.sim.step()
    assert urgent.state is SequenceState.FINISHED
    assert sum(each.state is SequenceState.FINISHED for each in rest) <= 2
