"""Compiles constraints off the step thread, each once."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from ramet.grammars.constraints import Constraint
from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.runtime.errors import InvalidConstraintError, RametError
from ramet.runtime.scheduler.sequence import Matcher


class CompiledGrammar(Protocol):
    """What the runtime asks of a grammar."""

    def matcher(self) -> Matcher: ...


class GrammarPool:
    """Compiled grammars by constraint, the least recently used dropped first.

    Requests with the same constraint share one compilation, also while it runs; one that fails
    isn't kept.
    """

    def __init__(
        self,
        compile_grammar: Callable[[Constraint], CompiledGrammar],
        *,
        num_threads: int = 1,
        max_grammars: int = 256,
    ) -> None:
        self._compile = compile_grammar
        self._max_grammars = max_grammars
        self._lock = threading.Lock()
        self._futures: OrderedDict[str, Future[CompiledGrammar]] = OrderedDict()
        self._threads = ThreadPoolExecutor(
            num_threads, thread_name_prefix="ramet-grammar", initializer=_step_back
        )

    def get(self, constraint: Constraint) -> Future[CompiledGrammar]:
        """The grammar of a constraint, soon or at once; a failure is a RametError."""
        key = constraint_key(constraint)
        with self._lock:
            future = self._futures.get(key)
            if future is not None:
                self._futures.move_to_end(key)
                return future
            future = self._threads.submit(self._compile_checked, constraint)
            self._futures[key] = future
            if len(self._futures) > self._max_grammars:
                self._futures.popitem(last=False)
        future.add_done_callback(lambda done: self._drop_failed(key, done))
        return future

    def close(self) -> None:
        """Ends the threads; what is queued is cancelled."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _drop_failed(self, key: str, done: Future[CompiledGrammar]) -> None:
        if done.cancelled() or done.exception() is not None:
            with self._lock:
                if self._futures.get(key) is done:
                    del self._futures[key]

    def _compile_checked(self, constraint: Constraint) -> CompiledGrammar:
        try:
            return self._compile(constraint)
        except RametError:
            raise
        except ConstraintError as error:
            raise InvalidConstraintError(
                str(error), param="constraint", code=_code(error)
            ) from error
        except Exception as error:
            raise RametError(
                f"the constraint could not be compiled: {type(error).__name__}: {error}"
            ) from error


def _step_back() -> None:
    """Gives this thread a small share of the processors, so that steps don't wait for it.

    Steps synchronise their threads many times; one that a compilation keeps off its core would
    hold up all. Where the system has no priorities by thread, nothing changes.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def constraint_key(constraint: Constraint) -> str:
    """Text that is equal for constraints of equal content; key order counts, for it may matter."""
    return json.dumps(dataclasses.asdict(constraint), default=repr)


def _code(error: ConstraintError) -> str:
    return "grammar_too_complex" if isinstance(error, GrammarTooComplexError) else "invalid_grammar"
