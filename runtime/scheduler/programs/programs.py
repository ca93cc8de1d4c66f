"""The programs whose calls are here: what they have running, and what they will come back to.

A call that later ones will extend leaves its prefix behind, and the program *keeps* it: the pages
stay held till the next call has its own hold on them, the program says that none will come
(``HintUpdate``), or the program rests for longer than its tool, or its own code, usually takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

from ramet.runtime.api.request import AHEAD, HintUpdate, ProgramHint
from ramet.runtime.cache import PrefixHandle, RadixCache
from ramet.runtime.scheduler.programs.shared_prefixes import SharedPrefixes
from ramet.runtime.scheduler.programs.tool_durations import ToolDurations
from ramet.runtime.scheduler.sequence.kept_prefix import KeptPrefix
from ramet.runtime.scheduler.sequence.sequence import Sequence, SequenceState

_MAX_REMEMBERED = 1024
"""Programs that are remembered though they hold nothing and none of their calls is here."""

_SOON = 64
"""Look-ups until a program that had to step back goes on, more or less."""

_MAX_LIKENED = 64
"""Keeps that a prompt is compared with where its hint doesn't say which of them it extends."""

ProgramKey = tuple[str, str]
"""(cache salt, program id): nobody meets a program of other salt by its id."""


class Program:
    """A program that has calls here, or may have some again.

    Attributes:
        number: the order of arrival.
        admitted: its calls may start, and what it keeps is held.
        calls: its sequences that wait or run.
        keeps: what it will come back to, by node.
        tokens_to_come: tokens that calls which aren't here yet will add, as it last said.
        unneeded: running calls that nobody will extend, contrary to their hints.
        lasting_len: how much of its first call's prompt may be of use to other programs, once that
            has ended.
        added_len: tokens that its ended calls have added to what was cached.
        has_ended: it has said that no call will come any more.
        num_passed: how often later programs were admitted before it.
        rests_since, rests_until: while it has no calls here; ``rest_is_known`` where its tools
            have been waited for before.
    """

    def __init__(self, key: ProgramKey, name: str, number: int) -> None:
        self.key = key
        self.name = name
        self.number = number
        self.admitted = False
        self.calls: dict[Sequence, None] = {}
        self.keeps: dict[str, KeptPrefix] = {}
        self.tokens_to_come = 0
        self.unneeded: set[str] = set()
        self.added_len = 0
        self.lasting_len: int | None = None
        self.has_ended = False
        self.num_passed = 0
        self.rests_since = 0.0
        self.rests_until = 0.0
        self.rest_is_known = False

    @property
    def priority(self) -> int:
        """The highest of its calls here."""
        return max((sequence.request.priority for sequence in self.calls), default=0)

    @property
    def is_waiting(self) -> bool:
        """Whether any of its calls waits."""
        return any(sequence.state is SequenceState.WAITING for sequence in self.calls)

    @property
    def is_keeping(self) -> bool:
        """Whether it holds any pages for later."""
        return any(keep.handle is not None for keep in self.keeps.values())

    @property
    def is_over(self) -> bool:
        """Whether no call of it is here, and none is known to come."""
        return not self.calls and (self.has_ended or not (self.keeps or self.tokens_to_come > 0))

    def added_so_far(self) -> int:
        """Tokens that its calls have added to what was cached, running ones included."""
        return self.added_len + sum(
            sequence.num_tokens - sequence.cached_len
            for sequence in self.calls
            if sequence.state is SequenceState.RUNNING
        )


class Programs:
    """All programs, and all that they keep.

    Args:
        max_kept_share: of the pool's pages, the most that may be held when a keep is added.
        only_tools: keep only what waits for a tool.
        on_gone: told of a program that is forgotten.

    Attributes:
        admitted: the programs whose calls may start, in order of admission.
        num_frees: grows whenever a program may have made room for another.
    """

    def __init__(
        self,
        cache: RadixCache,
        *,
        max_kept_share: float = 1.0,
        only_tools: bool = False,
        on_gone: Callable[[Program], None] = lambda _: None,
    ) -> None:
        self.durations = ToolDurations()
        self.admitted: dict[Program, None] = {}
        self.num_frees = 0
        self._cache = cache
        self._max_locked = int(max_kept_share * cache.pool.num_pages)
        self._only_tools = only_tools
        self._on_gone = on_gone
        self._heads = SharedPrefixes()
        self._programs: dict[ProgramKey, Program] = {}
        self._remembered: OrderedDict[Program, None] = OrderedDict()
        self._num_arrived = 0
        self.num_held = 0

    def __len__(self) -> int:
        return len(self._programs)

    def of(self, sequence: Sequence) -> Program | None:
        """The sequence's program, if it has one."""
        hint = sequence.request.hint
        return None if hint is None else self._programs.get(_key(sequence, hint))

    # -- calls ---------------------------------------------------------------------------------

    def arrive(self, sequence: Sequence, now: float) -> Program | None:
        """A call has come; returns its program."""
        hint = sequence.request.hint
        if hint is None:
            return None
        key = _key(sequence, hint)
        program = self._programs.get(key)
        if program is None:
            self._num_arrived += 1
            program = self._programs[key] = Program(key, hint.program, self._num_arrived)
        keep = self._extended(program, sequence, hint)
        if keep is not None:
            sequence.extends = keep
            self.durations.note(keep.tool, now - keep.since)
        self._remembered.pop(program, None)
        program.calls[sequence] = None
        program.tokens_to_come = hint.tokens_to_come
        return program

    def start(self, sequence: Sequence) -> None:
        """A call has its own hold on its prefix now."""
        keep, hint = sequence.extends, sequence.request.hint
        if hint is None:
            return
        sequence.extends = None
        program = self._programs[_key(sequence, hint)]
        self._drop(program, f"{hint.node_id}{AHEAD}")
        if keep is None:
            return
        if keep.remaining is not None:
            keep.remaining -= 1 + (hint.remaining_uses or 0)
            if keep.remaining <= 0:
                self._release(keep)
                if program.keeps.get(keep.node_id) is keep:
                    del program.keeps[keep.node_id]
                return
        self._shorten(keep)

    def leave(
        self, sequence: Sequence, handle: PrefixHandle | None, now: float, *, well: bool
    ) -> None:
        """A call has ended; ``handle`` is what it left in the cache, if it ran."""
        hint = sequence.request.hint
        self.num_frees += 1
        if hint is None:
            return
        program = self._programs[_key(sequence, hint)]
        del program.calls[sequence]
        sequence.extends = None
        if handle is not None:
            program.added_len += sequence.num_tokens - sequence.cached_len
            self._look_ahead(program, sequence, hint, handle, now, well=well)
        program.unneeded.discard(hint.node_id)
        if program.is_over:
            self._forget(program)
        elif not program.calls:
            self._rest(program, now)

    def _look_ahead(
        self,
        program: Program,
        sequence: Sequence,
        hint: ProgramHint,
        handle: PrefixHandle,
        now: float,
        *,
        well: bool,
    ) -> None:
        """Tells the cache when the program will use what a call has left, and keeps it."""
        lasting_len = max(sequence.cached_len, self._heads.measure(sequence))
        if program.lasting_len is None:
            program.lasting_len = lasting_len
        if hint.remaining_uses == 0 or hint.node_id in program.unneeded or program.has_ended:
            if not program.tokens_to_come and not program.is_waiting:
                # Nothing but what runs, and holds its prefix, will use the program's own again.
                lasting_len = min(lasting_len, program.lasting_len)
            self._cache.forget(handle, keep_len=lasting_len)
            return
        if hint.steps_to_next_use is not None:
            # A hint counts its program's steps; the cache counts look-ups of all programs.
            ticks = (hint.steps_to_next_use + 1) * max(len(self.admitted), 1)
            self._cache.expect(handle, hint.remaining_uses or 1, ticks)
        if not well or (self._only_tools and not hint.tool):
            return
        if sequence.params.prompt_logprobs is not None and hint.node_id in program.keeps:
            return  # of texts that are scored after one prompt, one stands for all
        self._drop(program, hint.node_id)
        known = sequence.token_ids[: handle.matched_len]
        keep = KeptPrefix(
            hint.node_id,
            None,
            hint.remaining_uses,
            lasting_len,
            hint.tool,
            now,
            len(known),
            _digest(known.tobytes()),
        )
        program.keeps[hint.node_id] = keep
        if program.admitted:
            self._hold(keep, handle)

    # -- what programs say, and don't say ------------------------------------------------------

    def update_hint(self, update: HintUpdate) -> None:
        """A program has learned something; what isn't known here is ignored."""
        program = self._programs.get((update.cache_salt, update.program_id))
        if program is None:
            return
        self.num_frees += 1
        running = {
            sequence.request.hint.node_id
            for sequence in program.calls
            if sequence.request.hint is not None
        }
        for node_id in update.unneeded:
            if node_id in running:
                program.unneeded.add(node_id)
            self._withdraw(program, node_id)
        if update.has_ended:
            program.has_ended = True
            for node_id in list(program.keeps):
                self._withdraw(program, node_id)
        if program.is_over:
            self._forget(program)

    def expire(self, now: float) -> None:
        """Gives up what has been kept for too long."""
        late = [p for p in self.admitted if not p.calls and now >= p.rests_until]
        for program in late:
            self.dismiss(program)

    # -- admission -----------------------------------------------------------------------------

    def admit(self, program: Program) -> None:
        """Lets the program's calls start, and what they leave be held."""
        program.admitted = True
        self.admitted[program] = None

    def dismiss(self, program: Program) -> None:
        """Takes all from a program that it keeps; what it has running goes on. With calls here it
        will be back before long, so what is evicted next is rather something else."""
        if program.calls:
            for keep in program.keeps.values():
                if keep.handle is not None:
                    self._cache.expect(keep.handle, 1, _SOON)
        self._take_all(program)
        if not program.calls:
            self._remember(program)

    def give_up(self, program: Program) -> bool:
        """Releases all that a program keeps; False if it held nothing."""
        held = [keep for keep in program.keeps.values() if keep.handle is not None]
        for keep in held:
            self._release(keep)
        self.num_frees += 1
        return bool(held)

    # -- inside --------------------------------------------------------------------------------

    def _take_all(self, program: Program) -> None:
        program.admitted = False
        self.admitted.pop(program, None)
        self.give_up(program)

    def _extended(
        self, program: Program, sequence: Sequence, hint: ProgramHint
    ) -> KeptPrefix | None:
        """What a call goes on from: as its hint says, or else the longest that it begins with."""
        if hint.extends:
            return program.keeps.get(hint.extends)
        if len(program.keeps) > _MAX_LIKENED:
            return None
        prompt = sequence.token_ids[: sequence.num_prompt]
        longest_first = sorted(program.keeps.values(), key=lambda keep: -keep.length)
        for keep in longest_first:
            if keep.tool and _digest(prompt[: keep.length].tobytes()) == keep.digest:
                return keep
        return None

    def _hold(self, keep: KeptPrefix, handle: PrefixHandle) -> None:
        num_locked = self._cache.num_locked
        self._cache.hold(handle)
        keep.handle = handle
        self.num_held += 1
        if self._cache.num_locked > max(self._max_locked, num_locked):
            self._release(keep)

    def _release(self, keep: KeptPrefix) -> None:
        if keep.handle is not None:
            self._cache.release(keep.handle)
            keep.handle = None
            self.num_held -= 1
            self.num_frees += 1

    def _shorten(self, keep: KeptPrefix) -> None:
        """Holds whole pages only: who has just started shares them, and its copy of the rest will
        take the place of the page that it was copied from."""
        handle, size = keep.handle, self._cache.page_size
        if handle is None or not handle.matched_len % size:
            return
        assert handle.node.parent is not None
        whole = PrefixHandle(handle.node.parent, handle.matched_len // size * size)
        self._cache.hold(whole)
        self._cache.release(handle)
        keep.handle = whole

    def _drop(self, program: Program, node_id: str) -> None:
        keep = program.keeps.pop(node_id, None)
        if keep is not None:
            self._release(keep)

    def _withdraw(self, program: Program, node_id: str) -> None:
        """Nobody will extend what a node has left."""
        keep = program.keeps.pop(node_id, None)
        if keep is not None and keep.handle is not None:
            handle = keep.handle
            self._release(keep)
            self._cache.withdraw(handle, keep.remaining or 1)
            self._cache.forget(handle, keep_len=keep.lasting_len)

    def _rest(self, program: Program, now: float) -> None:
        """None of the program's calls is here, and more may come."""
        tools = {keep.tool for keep in program.keeps.values()} or {""}
        program.rests_since = now
        program.rests_until = now + max(self.durations.budget_s(tool) for tool in tools)
        program.rest_is_known = all(map(self.durations.knows, tools))
        if not program.admitted:
            self._remember(program)

    def _remember(self, program: Program) -> None:
        self._remembered[program] = None
        if len(self._remembered) > _MAX_REMEMBERED:
            self._forget(next(iter(self._remembered)))

    def _forget(self, program: Program) -> None:
        self._take_all(program)
        self._remembered.pop(program, None)
        del self._programs[program.key]
        self._on_gone(program)


def _key(sequence: Sequence, hint: ProgramHint) -> ProgramKey:
    return sequence.request.cache_salt, hint.program_id


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
