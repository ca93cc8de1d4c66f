"""Scheduler, cache and engine core under simulated time: arrivals, aborts and faults in any order.

The scripted model keeps each page's tokens and refuses a page table that is wrong or stale, so
every step here also checks what the sequences' page tables say.
"""

from __future__ import annotations

import dataclasses
import os

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ramet.runtime.api.batch import Batch
from ramet.runtime.api.errors import EngineDeadError, QueueFullError, RequestAbortedError
from ramet.runtime.api.events import Embedding, Event, Failed, Finished, TextDelta
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import HintUpdate, ProgramHint, Request, next_request_id
from ramet.runtime.scheduler import SchedulerConfig, Sequence, SequenceState
from ramet.runtime.scheduler.queue.policy import POLICIES
from ramet.runtime.scheduler.sequence.token_bans import pack
from ramet.runtime.testing.scripted_model import scripted_states
from ramet.runtime.testing.simulation import Simulation

TOKENIZER = Simulation.tokenizer
ALL_ALLOWED = pack(range(TOKENIZER.vocab_size), TOKENIZER.vocab_size)
DIGITS = pack(TOKENIZER.encode("0123456789"), TOKENIZER.vocab_size)
SEVEN = pack(TOKENIZER.encode("7"), TOKENIZER.vocab_size)
POISON = 13  # a prompt with this token makes the runner fail
NUM_STEPS = int(os.environ.get("RAMET_SIMULATION_STEPS", "60"))
NUM_EXAMPLES = int(os.environ.get("RAMET_SIMULATION_EXAMPLES", "60"))


class DigitsMatcher:
    """``count`` digits, then the end; where it faults, it does so for good."""

    def __init__(self, count: int, fault_at: int | None, forced: bool) -> None:
        self.history: list[int] = []
        self.count = count
        self.fault_at = fault_at
        self.forced = forced

    @property
    def is_accepting(self) -> bool:
        return len(self.history) >= self.count

    @property
    def is_finished(self) -> bool:
        return False  # no end token has been accepted

    def _maybe_fault(self) -> None:
        if self.fault_at is not None and len(self.history) >= self.fault_at:
            raise RuntimeError("the matcher is broken")

    def fill_mask(self, row: np.ndarray) -> None:
        self._maybe_fault()
        row[:] = 0 if self.is_accepting else SEVEN if self.forced_bytes() else DIGITS

    def try_mask(self, row: np.ndarray, seconds: float) -> bool:
        if len(self.history) % 4 == 2:
            return False
        self.fill_mask(row)
        return True

    def fill_mask_in_background(self, row: np.ndarray) -> None:
        self.fill_mask(row)

    def fork(self) -> DigitsMatcher:
        other = DigitsMatcher(self.count, self.fault_at, self.forced)
        other.history = self.history.copy()
        return other

    def accept(self, token_id: int) -> bool:
        self._maybe_fault()
        allowed = SEVEN if self.forced_bytes() else DIGITS
        if not allowed[token_id // 32] >> (token_id % 32) & 1 or self.is_accepting:
            return False
        self.history.append(token_id)
        return True

    def rollback(self, num_tokens: int) -> None:
        if num_tokens:
            del self.history[-num_tokens:]

    def could_end(self, num_tokens: int, text: bytes) -> bool:
        return not text and len(self.history) - num_tokens == self.count

    def forced_bytes(self) -> bytes:
        left = self.count - len(self.history)
        return b"7" * min(left, 9) if self.forced and len(self.history) % 3 == 1 else b""


class SchedulerMachine(RuleBasedStateMachine):
    """Everything that can happen to a scheduler, in any order."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        num_seqs=st.sampled_from([4, 6, 2, 1]),
        num_tokens=st.sampled_from([24, 40, 6]),
        num_pages=st.sampled_from([12, 18, 30]),
        page_size=st.sampled_from([1, 4, 8]),
        forced=st.booleans(),
        max_draft_len=st.sampled_from([4, 0]),
        max_waiting=st.sampled_from([100, 100, 4]),
        max_wait_s=st.sampled_from([30.0, 5.0]),
        mask_steps=st.sampled_from([None, 0, 3]),
    )
    def start(
        self,
        policy: str,
        num_seqs: int,
        num_tokens: int,
        num_pages: int,
        page_size: int,
        forced: bool,
        max_draft_len: int,
        max_waiting: int,
        max_wait_s: float,
        mask_steps: int | None,
    ) -> None:
        self.config = SchedulerConfig(
            max_num_seqs=num_seqs,
            max_tokens_per_step=num_tokens,
            max_logits_per_step=num_tokens,
            policy=policy,
            tenant_weights={"big": 3.0},
            forced_tokens=forced,
            max_draft_len=max_draft_len,
            max_waiting=max_waiting,
            max_wait_s=max_wait_s,
        )
        self.broken = False
        self.sim = Simulation(
            self.config,
            num_pages * 8 // page_size,
            page_size,
            before_step=self._before_step,
            mask_steps=mask_steps,
        )
        self.sequences: list[Sequence] = []
        self.num_digits: dict[Sequence, tuple[int, bool]] = {}

    def _before_step(self, batch: Batch) -> None:
        if self.broken or POISON in batch.token_ids:
            raise RuntimeError("the runner fails")

    @rule(
        family=st.integers(20, 22),
        shared=st.sampled_from([0, 3, 17, 40]),
        tail=st.lists(st.integers(20, 22), max_size=6),
        max_tokens=st.sampled_from([60, 60, 24, 5, 1]),
        salt=st.sampled_from(["", "", "x"]),
        priority=st.integers(0, 1),
        tenant=st.sampled_from(["", "big"]),
        deadline=st.sampled_from([None] * 6 + [3.0, 30.0]),
        poison=st.sampled_from([False] * 9 + [True]),
        digits=st.sampled_from([None, None, 9, 3]),
        fault_at=st.sampled_from([None] * 5 + [0, 1, 3]),
        forced=st.booleans(),
        continues=st.sampled_from([0, 0, 1, 2, 2]),
        score=st.sampled_from([None, None, 0, 1]),
        penalised=st.booleans(),
        pooling=st.sampled_from([None] * 8 + ["mean", "last"]),
        compiling=st.sampled_from([False, False, False, True]),
        hint=st.one_of(
            st.none(),
            st.tuples(
                st.sampled_from(["p", "q"]),
                st.sampled_from([None, 0, 1, 3]),
                st.sampled_from([None, 0, 1, 3]),
                st.sampled_from([0.0, 0.4, 1.0]),
                st.sampled_from(["", "search"]),
                st.sampled_from(["0", "1", "2"]),
                st.sampled_from(["", "0", "1"]),
                st.sampled_from(["", "program"]),
                st.sampled_from([0, 0, 30, 400]),
            ),
        ),
    )
    def arrive(self, **draw: object) -> None:
        prompt = [draw["family"]] * draw["shared"] + draw["tail"] + [30]
        if draw["poison"]:
            prompt.append(POISON)
        prompt = prompt[: self.sim.max_len - 2]
        score, hint = draw["score"], draw["hint"]
        params = SamplingParams(
            temperature=0,
            max_tokens=min(draw["max_tokens"], self.sim.max_len - len(prompt)),
            ignore_eos=True,
            prompt_logprobs=None if score is None else 0,
            presence_penalty=0.5 if draw["penalised"] else 0.0,
            logit_bias={5: 1.0} if draw["penalised"] else {},
        )
        request = Request(
            prompt_token_ids=tuple(prompt),
            params=params,
            cache_salt=draw["salt"],
            priority=draw["priority"],
            tenant=draw["tenant"],
            deadline_s=draw["deadline"],
            score_from=None if score is None else min(score, len(prompt)),
            hint=None
            if hint is None
            else ProgramHint(
                program_id=hint[0],
                steps_to_next_use=hint[1],
                remaining_uses=hint[2],
                critical_path_weight=hint[3],
                tool=hint[4],
                node_id=hint[5],
                extends=hint[6],
                program=hint[7],
                tokens_to_come=hint[8],
            ),
        )
        if draw["pooling"]:
            request = dataclasses.replace(
                request, pooling=draw["pooling"], params=SamplingParams(), score_from=None
            )
        matcher = None
        if draw["digits"] is not None and not draw["pooling"]:
            matcher = DigitsMatcher(draw["digits"], draw["fault_at"], draw["forced"])
        continued = draw["continues"]
        if continued and self.sequences:
            earlier = self.sequences[-continued % len(self.sequences)]
            prompt = [*earlier.known.tolist(), 31]
            if continued == 2:  # the same once more
                prompt = list(earlier.request.prompt_token_ids)
            if len(prompt) + params.max_tokens <= self.sim.max_len:  # a vector takes no more
                request = dataclasses.replace(
                    request, prompt_token_ids=tuple(prompt), request_id=next_request_id()
                )
        try:
            sequence = self.sim.add(request, matcher, compiling=draw["compiling"])
        except QueueFullError:
            scheduler = self.sim.scheduler
            assert scheduler.num_waiting + scheduler.num_compiling >= self.config.max_waiting
            return
        self.sequences.append(sequence)
        if matcher is not None:
            self.num_digits[sequence] = matcher.count, matcher.forced

    @rule(count=st.sampled_from([8, 3, 1]))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.sim.step()
            self.sim.scheduler.check()

    @precondition(lambda self: self.sequences)
    @rule(data=st.data())
    def finish_compiling(self, data: st.DataObject) -> None:
        """A grammar is ready; its request may have been released before."""
        held = [each for each in self.sequences if each.state is SequenceState.COMPILING]
        ended = [each for each in self.sequences if each.state is SequenceState.FINISHED]
        if held or ended:
            self.sim.scheduler.add(data.draw(st.sampled_from(held or ended)))

    @precondition(lambda self: self.sequences)
    @rule(data=st.data(), reason=st.sampled_from(["aborted", "the client has disconnected"]))
    def abort(self, data: st.DataObject, reason: str) -> None:
        """In any state: compiling, waiting, running, preempted, blocked on another, ended."""
        sequence = data.draw(st.sampled_from(self.sequences))
        self.sim.scheduler.release(sequence, RequestAbortedError(reason))

    @rule(
        program_id=st.sampled_from(["p", "q"]),
        salt=st.sampled_from(["", "x"]),
        unneeded=st.lists(st.sampled_from(["0", "1", "2"]), max_size=2),
        has_ended=st.booleans(),
    )
    def update_hint(self, program_id: str, salt: str, unneeded: list[str], has_ended: bool) -> None:
        """A program tells what it has learned, true or not."""
        self.sim.scheduler.update_hint(
            HintUpdate(
                program_id=program_id,
                cache_salt=salt,
                unneeded=tuple(unneeded),
                has_ended=has_ended,
            )
        )

    @rule(really=st.sampled_from([False] * 19 + [True]))
    def end_all(self, really: bool) -> None:
        if really:
            for sequence in self.sim.requests.live():
                self.sim.scheduler.release(sequence, EngineDeadError("the engine is closed"))
            assert not self.sim.requests.live()
            assert self.sim.scheduler.idle

    @rule(broken=st.sampled_from([False] * 9 + [True]))
    def broken_step(self, broken: bool) -> None:
        self.broken = broken
        self.sim.step()
        self.broken = False

    @rule(seconds=st.sampled_from([0.5, 5.0, 50.0]))
    def wait(self, seconds: float) -> None:
        self.sim.now += seconds

    @rule(count=st.integers(1, 10))
    def evict(self, count: int) -> None:
        self.sim.cache.evict(count)

    @invariant()
    def consistent(self) -> None:
        if hasattr(self, "sim"):
            self.sim.scheduler.check()

    def teardown(self) -> None:
        if not hasattr(self, "sim"):
            return
        for sequence in self.sequences:
            if sequence.state is SequenceState.COMPILING:
                self.sim.scheduler.add(sequence)
        self.sim.drain()
        self.sim.scheduler.check()
        assert not self.sim.requests.live()
        for sequence, events in self.sim.events.items():
            self._check_answer(sequence, events)
        self.sim.now += 1e6
        self.sim.step()  # ends what is held for tools
        self.sim.cache.clear()
        assert self.sim.cache.pool.num_free == self.sim.cache.pool.num_pages

    def _check_answer(self, sequence: Sequence, events: list[Event]) -> None:
        assert sequence.state is SequenceState.FINISHED
        terminal = [event for event in events if isinstance(event, Finished | Failed)]
        assert terminal == events[-1:]
        tokens = [t.token_id for e in events if isinstance(e, TextDelta) for t in e.tokens]
        usage = terminal[0].usage
        assert usage.completion_tokens == len(tokens)
        prompt = sequence.request.prompt_token_ids
        assert 0 <= usage.cached_tokens < len(prompt) or usage.cached_tokens == 0
        if sequence.request.pooling:
            self._check_vector(sequence, events)
            return
        if sequence in self.num_digits:
            expected = self._alone(sequence)
        else:
            expected = self.sim.runner.continuation(prompt, len(tokens))
        if isinstance(terminal[0], Failed):
            assert tokens == expected[: len(tokens)]
            return
        assert POISON not in prompt or not sequence.num_output
        assert tokens == expected
        if sequence not in self.num_digits:
            assert len(tokens) == sequence.params.max_tokens

    @staticmethod
    def _check_vector(sequence: Sequence, events: list[Event]) -> None:
        vectors = [event.vector for event in events if isinstance(event, Embedding)]
        assert len(vectors) == isinstance(events[-1], Finished)
        if vectors:
            prompt = np.array(sequence.request.prompt_token_ids)
            states = scripted_states(prompt, np.arange(len(prompt))).astype(np.float64)
            total = states[0] if sequence.request.pooling == "mean" else states[-1]
            for state in states[1:] if sequence.request.pooling == "mean" else ():
                total = total + state
            expected = (total / np.sqrt(np.square(total).sum())).astype(np.float32)
            np.testing.assert_array_equal(vectors[0], expected)

    def _alone(self, sequence: Sequence) -> list[int]:
        """The output of a constrained request that nobody else shares an engine with."""
        config = SchedulerConfig(forced_tokens=self.config.forced_tokens, max_draft_len=0)
        pool = self.sim.cache.pool
        alone = Simulation(config, pool.num_pages, pool.page_size)
        request = Request(
            prompt_token_ids=sequence.request.prompt_token_ids, params=sequence.params
        )
        count, forced = self.num_digits[sequence]
        again = alone.add(request, DigitsMatcher(count, None, forced))
        alone.drain()
        assert isinstance(alone.events[again][-1], Finished)
        return again.output.tolist()


SchedulerMachine.TestCase.settings = settings(
    max_examples=NUM_EXAMPLES,
    stateful_step_count=NUM_STEPS,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestScheduler = SchedulerMachine.TestCase
