"""Programs with calls in the engine, and the prefixes that are kept for their next calls.

A call that later ones will extend leaves its prefix behind, and the program *keeps* it: its pages
are held until the next call holds them itself, the program withdraws it (``HintUpdate``), or the
program is idle for longer than its tool, or its own code, usually takes.
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
"""Most programs without calls and without held pages that are remembered."""

_RESUME_TICKS = 64
"""Estimated cache lookups until a suspended program resumes."""

_MAX_COMPARED = 64
"""Most kept prefixes that a prompt is compared with where its hint doesn't name one."""

ProgramKey = tuple[str, str]
"""(cache salt, program id): programs of different salts never share an id."""


class Program:
    """A program that has calls in the engine, or may have some later.

    Attributes:
        number: the order of arrival.
        admitted: its calls may start, and its kept prefixes are held.
        calls: its waiting and running sequences.
        kept: prefixes that later calls extend, by node.
        tokens_to_come: tokens that calls which haven't arrived will add, by its last hint.
        unneeded: running calls that no later call extends, contrary to their hints.
        reusable_len: tokens of its first call's prompt that other programs may reuse; None until
            that call has ended.
        added_len: tokens that its ended calls have added to the cache.
        has_ended: its last update says that no call follows.
        num_passed: how often later programs were admitted before it.
        idle_since, hold_until: while it has no calls. ``hold_is_learned``: from earlier durations
            of its tools.
    """

    def __init__(self, key: ProgramKey, name: str, number: int) -> None:
        self.key = key
        self.name = name
        self.number = number
        self.admitted = False
        self.calls: dict[Sequence, None] = {}
        self.kept: dict[str, KeptPrefix] = {}
        self.tokens_to_come = 0
        self.unneeded: set[str] = set()
        self.added_len = 0
        self.reusable_len: int | None = None
        self.has_ended = False
        self.num_passed = 0
        self.idle_since = 0.0
        self.hold_until = 0.0
        self.hold_is_learned = False

    @property
    def priority(self) -> int:
        """The highest priority of its calls."""
        return max((sequence.request.priority for sequence in self.calls), default=0)

    @property
    def is_waiting(self) -> bool:
        """Whether any of its calls waits."""
        return any(sequence.state is SequenceState.WAITING for sequence in self.calls)

    @property
    def holds_pages(self) -> bool:
        """Whether it holds pages of kept prefixes."""
        return any(keep.handle is not None for keep in self.kept.values())

    @property
    def is_over(self) -> bool:
        """Whether it has no calls, and none is known to come."""
        return not self.calls and (self.has_ended or not (self.kept or self.tokens_to_come > 0))

    def num_added_tokens(self) -> int:
        """Tokens that its calls have added to the cache, running ones included."""
        return self.added_len + sum(
            sequence.num_tokens - sequence.cached_len
            for sequence in self.calls
            if sequence.state is SequenceState.RUNNING
        )


class Programs:
    """All programs and their kept prefixes.

    Args:
        max_kept_share: most of the pool's pages that may be locked when a prefix is kept.
        only_tools: keep prefixes only of calls that wait for a tool.
        on_forgotten: called with each program that is forgotten.

    Attributes:
        admitted: the programs whose calls may start, in order of admission.
        num_releases: grows whenever a program may have freed pages for another.
    """

    def __init__(
        self,
        cache: RadixCache,
        *,
        max_kept_share: float = 1.0,
        only_tools: bool = False,
        on_forgotten: Callable[[Program], None] = lambda _: None,
    ) -> None:
        self.durations = ToolDurations()
        self.admitted: dict[Program, None] = {}
        self.num_releases = 0
        self._cache = cache
        self._max_locked = int(max_kept_share * cache.pool.num_pages)
        self._only_tools = only_tools
        self._on_forgotten = on_forgotten
        self._shared_prefixes = SharedPrefixes()
        self._programs: dict[ProgramKey, Program] = {}
        self._remembered: OrderedDict[Program, None] = OrderedDict()
        self._num_arrived = 0
        self.num_held = 0

    def __len__(self) -> int:
        return len(self._programs)

    def find(self, sequence: Sequence) -> Program | None:
        """The sequence's program, if it has one."""
        hint = sequence.request.hint
        return None if hint is None else self._programs.get(_key(sequence, hint))

    # -- calls ---------------------------------------------------------------------------------

    def add_call(self, sequence: Sequence, now: float) -> Program | None:
        """Adds an arrived call; returns its program."""
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
            self.durations.observe(keep.tool, now - keep.since)
        self._remembered.pop(program, None)
        program.calls[sequence] = None
        program.tokens_to_come = hint.tokens_to_come
        return program

    def start_call(self, sequence: Sequence) -> None:
        """Notes that a call has started, and holds its prefix itself."""
        keep, hint = sequence.extends, sequence.request.hint
        if hint is None:
            return
        sequence.extends = None
        program = self._programs[_key(sequence, hint)]
        self._drop_kept(program, f"{hint.node_id}{AHEAD}")
        if keep is None:
            return
        if keep.remaining is not None:
            keep.remaining -= 1 + (hint.remaining_uses or 0)
            if keep.remaining <= 0:
                self._release(keep)
                if program.kept.get(keep.node_id) is keep:
                    del program.kept[keep.node_id]
                return
        self._shorten(keep)

    def end_call(
        self, sequence: Sequence, handle: PrefixHandle | None, now: float, *, is_success: bool
    ) -> None:
        """Removes an ended call; ``handle`` is what it left in the cache, if it ran."""
        hint = sequence.request.hint
        self.num_releases += 1
        if hint is None:
            return
        program = self._programs[_key(sequence, hint)]
        del program.calls[sequence]
        sequence.extends = None
        if handle is not None:
            program.added_len += sequence.num_tokens - sequence.cached_len
            self._keep_for_later(program, sequence, hint, handle, now, is_success=is_success)
        program.unneeded.discard(hint.node_id)
        if program.is_over:
            self._forget(program)
        elif not program.calls:
            self._note_idle(program, now)

    def _keep_for_later(
        self,
        program: Program,
        sequence: Sequence,
        hint: ProgramHint,
        handle: PrefixHandle,
        now: float,
        *,
        is_success: bool,
    ) -> None:
        """Keeps an ended call's prefix, and hints its next use to the cache."""
        reusable_len = max(sequence.cached_len, self._shared_prefixes.measure(sequence))
        if program.reusable_len is None:
            program.reusable_len = reusable_len
        if hint.remaining_uses == 0 or hint.node_id in program.unneeded or program.has_ended:
            if not program.tokens_to_come and not program.is_waiting:
                # Only running calls, which hold their prefixes, still use the program's own text.
                reusable_len = min(reusable_len, program.reusable_len)
            self._cache.forget(handle, keep_len=reusable_len)
            return
        if hint.steps_to_next_use is not None:
            # Hints count steps of one program; the cache counts lookups of all.
            ticks = (hint.steps_to_next_use + 1) * max(len(self.admitted), 1)
            self._cache.expect(handle, hint.remaining_uses or 1, ticks)
        if not is_success or (self._only_tools and not hint.tool):
            return
        if sequence.params.prompt_logprobs is not None and hint.node_id in program.kept:
            return  # texts that are scored after one prompt need its prefix only once
        self._drop_kept(program, hint.node_id)
        known = sequence.token_ids[: handle.matched_len]
        keep = KeptPrefix(
            hint.node_id,
            None,
            hint.remaining_uses,
            reusable_len,
            hint.tool,
            now,
            len(known),
            _digest(known.tobytes()),
        )
        program.kept[hint.node_id] = keep
        if program.admitted:
            self._hold(keep, handle)

    # -- updates and expiry --------------------------------------------------------------------

    def update_hint(self, update: HintUpdate) -> None:
        """Updates a program's future calls; unknown programs and nodes are ignored."""
        program = self._programs.get((update.cache_salt, update.program_id))
        if program is None:
            return
        self.num_releases += 1
        running = {
            sequence.request.hint.node_id
            for sequence in program.calls
            if sequence.request.hint is not None
        }
        for node_id in update.unneeded:
            if node_id in running:
                program.unneeded.add(node_id)
            self._drop_unneeded(program, node_id)
        if update.has_ended:
            program.has_ended = True
            for node_id in list(program.kept):
                self._drop_unneeded(program, node_id)
        if program.is_over:
            self._forget(program)

    def expire(self, now: float) -> None:
        """Revokes the admission of programs that have been idle for too long."""
        late = [p for p in self.admitted if not p.calls and now >= p.hold_until]
        for program in late:
            self.revoke_admission(program)

    # -- admission -----------------------------------------------------------------------------

    def admit(self, program: Program) -> None:
        """Lets a program's calls start, and their prefixes be held."""
        program.admitted = True
        self.admitted[program] = None

    def revoke_admission(self, program: Program) -> None:
        """Releases a program's kept prefixes; its running calls go on.

        With calls here it resumes soon, so its prefixes are announced to the cache.
        """
        if program.calls:
            for keep in program.kept.values():
                if keep.handle is not None:
                    self._cache.expect(keep.handle, 1, _RESUME_TICKS)
        self._revoke(program)
        if not program.calls:
            self._remember(program)

    def release_kept(self, program: Program) -> bool:
        """Releases a program's kept prefixes; False if it held none."""
        held = [keep for keep in program.kept.values() if keep.handle is not None]
        for keep in held:
            self._release(keep)
        self.num_releases += 1
        return bool(held)

    # -- inside --------------------------------------------------------------------------------

    def _revoke(self, program: Program) -> None:
        program.admitted = False
        self.admitted.pop(program, None)
        self.release_kept(program)

    def _extended(
        self, program: Program, sequence: Sequence, hint: ProgramHint
    ) -> KeptPrefix | None:
        """The kept prefix that a call extends: the hint's, or else the longest that matches."""
        if hint.extends:
            return program.kept.get(hint.extends)
        if len(program.kept) > _MAX_COMPARED:
            return None
        prompt = sequence.token_ids[: sequence.num_prompt]
        longest_first = sorted(program.kept.values(), key=lambda keep: -keep.length)
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
            self.num_releases += 1

    def _shorten(self, keep: KeptPrefix) -> None:
        """Holds whole pages only: the started call shares those, and has copied the last one."""
        handle, size = keep.handle, self._cache.page_size
        if handle is None or not handle.matched_len % size:
            return
        assert handle.node.parent is not None
        whole = PrefixHandle(handle.node.parent, handle.matched_len // size * size)
        self._cache.hold(whole)
        self._cache.release(handle)
        keep.handle = whole

    def _drop_kept(self, program: Program, node_id: str) -> None:
        keep = program.kept.pop(node_id, None)
        if keep is not None:
            self._release(keep)

    def _drop_unneeded(self, program: Program, node_id: str) -> None:
        """Releases the prefix of a node that no later call extends."""
        keep = program.kept.pop(node_id, None)
        if keep is not None and keep.handle is not None:
            handle = keep.handle
            self._release(keep)
            self._cache.withdraw(handle, keep.remaining or 1)
            self._cache.forget(handle, keep_len=keep.reusable_len)

    def _note_idle(self, program: Program, now: float) -> None:
        """Starts an idle period: the program has no calls, and more may come."""
        tools = {keep.tool for keep in program.kept.values()} or {""}
        program.idle_since = now
        program.hold_until = now + max(self.durations.budget_s(tool) for tool in tools)
        program.hold_is_learned = all(map(self.durations.has_observed, tools))
        if not program.admitted:
            self._remember(program)

    def _remember(self, program: Program) -> None:
        self._remembered[program] = None
        if len(self._remembered) > _MAX_REMEMBERED:
            self._forget(next(iter(self._remembered)))

    def _forget(self, program: Program) -> None:
        self._revoke(program)
        self._remembered.pop(program, None)
        del self._programs[program.key]
        self._on_forgotten(program)


def _key(sequence: Sequence, hint: ProgramHint) -> ProgramKey:
    return sequence.request.cache_salt, hint.program_id


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
