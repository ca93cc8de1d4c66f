"""Compiles constraints off the step thread, each once."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from ramet.grammars.constraints import Constraint
from ramet.grammars.constraints.serialize import content_key
from ramet.grammars.errors import ConstraintError
from ramet.runtime.api.errors import (
    EngineDeadError,
    RametError,
    RequestAbortedError,
    constraint_error,
)
from ramet.runtime.api.request import FIRST_COMPLETION_WORK, SHARED, GrammarScope
from ramet.runtime.engine.daemon_threads import DaemonThreads
from ramet.runtime.scheduler.sequence.sequence import Matcher


class CompiledGrammar(Protocol):
    """The part of a grammar that the runtime uses."""

    def matcher(self) -> Matcher: ...


_LARGE = 1 << 15
"""Characters of a constraint that may take seconds to compile."""

_SLICE_S, _NUM_SLICES = 0.002, 100
"""Length and maximum number of the slices in which a compiled grammar prepares its masks; waiting
compilations run between them."""


@dataclass(slots=True)
class _Compilation:
    """A compilation that waits or runs; each request of it adds an ``is_wanted``."""

    wanted_by: list[Callable[[], bool]]
    future: Future[CompiledGrammar] = field(init=False)


class GrammarManager:
    """Compiles constraints in threads of its own; keeps nothing that has been compiled.

    Requests with the same constraint share one compilation while it runs.

    Args:
        compile_grammar: compiles a constraint, given with its ``content_key`` and its scope.
        find: the cached grammar of such a constraint, or None; called in the caller's thread, so
            it must be quick.
        prepare: prepares a grammar's masks for a number of seconds; returns whether there is more.
        num_threads: compilations at a time; of several, one is for large constraints, so that
            others never wait for these.

    Attributes:
        on_prepared: called in a compiling thread once a grammar is made and prepared.
    """

    on_prepared: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        compile_grammar: Callable[[Constraint, str, GrammarScope], CompiledGrammar],
        find: Callable[[Constraint, str, GrammarScope], CompiledGrammar | None] = lambda *_: None,
        *,
        prepare: Callable[[CompiledGrammar, float], bool] = lambda *_: False,
        num_threads: int = 1,
    ) -> None:
        self._compile = compile_grammar
        self._find = find
        self._prepare = prepare
        self._lock = threading.Lock()
        self._compilations: dict[tuple[GrammarScope, str], _Compilation] = {}
        self._closed = False
        self._threads = _threads(max(1, num_threads - 1))
        self._threads_for_large = _threads(1) if num_threads > 1 else self._threads

    def get(
        self,
        constraint: Constraint,
        is_wanted: Callable[[], bool] = lambda: True,
        scope: GrammarScope = SHARED,
    ) -> Future[CompiledGrammar]:
        """The grammar of a constraint: cached, or compiled in a thread; a failure is a RametError.

        It isn't compiled if no caller's ``is_wanted`` is true any more when its turn comes.
        InvalidConstraintError if it is no plain data; EngineDeadError after ``close``.
        """
        try:
            key = content_key(constraint)
            found = self._find(constraint, key, scope)
        except ConstraintError as error:
            raise constraint_error(error) from error
        if found is not None:
            ready: Future[CompiledGrammar] = Future()
            ready.set_result(found)
            return ready
        with self._lock:
            if self._closed:
                raise EngineDeadError("the engine has been closed")
            known = self._compilations.get((scope, key))
            if known is not None:
                known.wanted_by.append(is_wanted)
                return known.future
            compilation = self._compilations[scope, key] = _Compilation([is_wanted])
            threads = self._threads if len(key) < _LARGE else self._threads_for_large
            compilation.future = threads.submit(self._run, scope, key, constraint)
        return compilation.future

    def compile(self, constraint: Constraint, scope: GrammarScope = SHARED) -> Future[None]:
        """Like ``get``, but resolves to None; use it to validate a constraint.

        Cancelling it cancels no compilation that others wait for, or that has begun.
        """
        answer: Future[None] = Future()

        def pass_on(done: Future[CompiledGrammar]) -> None:
            if not answer.set_running_or_notify_cancel():
                return
            error = EngineDeadError("closed") if done.cancelled() else done.exception()
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        self.get(constraint, lambda: not answer.cancelled(), scope).add_done_callback(pass_on)
        return answer

    def run_first(self, work: Callable[[], None]) -> None:
        """Runs work that grammars need in a compiling thread; small constraints wait for it."""
        self._threads.submit(work)

    def close(self) -> None:
        """Ends the threads; what is queued is cancelled."""
        with self._lock:
            self._closed = True
        for threads in {self._threads, self._threads_for_large}:
            threads.close()

    def _run(self, scope: GrammarScope, key: str, constraint: Constraint) -> CompiledGrammar:
        with self._lock:
            if not any(is_wanted() for is_wanted in self._compilations[scope, key].wanted_by):
                del self._compilations[scope, key]
                raise RequestAbortedError("no request waits for this grammar any more")
        try:
            grammar = self._compile_checked(constraint, key, scope)
        finally:
            with self._lock:
                del self._compilations[scope, key]
        self._threads.submit(self._prepare_masks, grammar, _NUM_SLICES)
        return grammar

    def _prepare_masks(self, grammar: CompiledGrammar, num_slices: int) -> None:
        if self._prepare(grammar, _SLICE_S) and num_slices > 1:
            self._threads.submit(self._prepare_masks, grammar, num_slices - 1)
        else:
            self.on_prepared()

    def _compile_checked(
        self, constraint: Constraint, key: str, scope: GrammarScope
    ) -> CompiledGrammar:
        try:
            return self._compile(constraint, key, scope)
        except RametError:
            raise
        except ConstraintError as error:
            raise constraint_error(error) from error
        except Exception as error:
            raise RametError(
                f"the constraint could not be compiled: {type(error).__name__}: {error}"
            ) from error


def find_first_completion(compiled: Future[CompiledGrammar]) -> None:
    """Searches for the completion of an empty output; the grammar remembers what it finds.

    As a callback of the compilation it runs in the compiling thread, and spares the step thread a
    search that may take long.
    """
    if compiled.cancelled() or compiled.exception() is not None:
        return
    with contextlib.suppress(Exception):  # what is wrong fails the request when it is scheduled
        compiled.result().matcher().completion(max_work=FIRST_COMPLETION_WORK)


def _threads(count: int) -> DaemonThreads:
    return DaemonThreads(count, "ramet-grammar", _lower_priority)


def _lower_priority() -> None:
    """Lowers this thread's priority, so that steps don't wait for it.

    A step synchronises its threads many times: one that a compilation keeps off its core delays
    all. Where the system has no priorities by thread, nothing changes.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
