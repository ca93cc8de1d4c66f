"""The callers' side: an engine that looks like ``Engine`` and runs in another process.

If that process dies, its requests end in ``EngineDeadError``, ``error`` says so, and a new process
is started, after growing pauses while starts fail, and a bounded number of times. One without
progress is reported by ``error`` and killed after ``timeout_s``. A thread sends the commands, so no
caller waits for it; deadlines and aborts are kept on this side.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import logging
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.errors import (
    EngineDeadError,
    EngineUnresponsiveError,
    RametError,
    RequestAbortedError,
)
from ramet.runtime.api.fork_guard import ForkGuard
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.api.request import SHARED, GrammarScope, HintUpdate, Request
from ramet.runtime.cache import CacheView
from ramet.runtime.engine.chat_templates import configured_template, own_template
from ramet.runtime.engine.config import EngineConfig
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.engine.process.liveness import UNRESPONSIVE_S, Liveness
from ramet.runtime.engine.process.messages import (
    Abort,
    Answer,
    Ask,
    Close,
    Command,
    Compile,
    Events,
    Forget,
    Heartbeat,
    Question,
    Ready,
    Report,
    SetTenantWeights,
    StartFailed,
    Submit,
    UpdateHint,
)
from ramet.runtime.engine.process.pending_answers import PendingAnswers
from ramet.runtime.engine.process.pending_requests import PendingRequests
from ramet.runtime.engine.process.restarts import MAX_FAILED_STARTS, RestartPolicy
from ramet.runtime.engine.process.sender import CommandSender
from ramet.runtime.engine.process.worker import load_engine, run_engine
from ramet.runtime.engine.requests.admission import check_request
from ramet.runtime.engine.requests.request_stream import RequestStream
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.model.load import open_model
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

if TYPE_CHECKING:
    from ramet.grammars import Vocabulary
    from ramet.runtime.engine.engine import Engine
    from ramet.runtime.tokenizer import ChatTemplate

logger = logging.getLogger("ramet.engine")

_SPAWN = multiprocessing.get_context("spawn")
_ANSWER_TIMEOUT_S = 60.0
_STATS_TIMEOUT_S = 2.0
_CLOSE_TIMEOUT_S = 30.0
_TIMEOUT_S = 30.0


class EngineProcess:
    """An engine in a process of its own.

    This side of it belongs to the process that makes it; see ``Engine``.

    Args:
        factory: makes the engine, in the other process; it must be picklable.
        tokenizer: the model's, used on this side.
        model_name: what the model is called.
        chat_template: how its chats are printed; None: the tokenizer's own, if it has one.
        timeout_s: time without progress after which the process is killed and started again.

    Raises what the factory raises, once, at the start.
    """

    def __init__(
        self,
        factory: Callable[[], Engine],
        tokenizer: Tokenizer,
        *,
        model_name: str = "model",
        chat_template: ChatTemplate | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._begin(factory, timeout_s)
        with self._closed_on_failure():
            self._attach(tokenizer, model_name, chat_template)

    @classmethod
    def from_model(
        cls,
        model: str | Path = "smollm2",
        config: EngineConfig | None = None,
        *,
        overlap: Callable[[], object] = lambda: None,
        prepare: Callable[[], object] | None = None,
    ) -> EngineProcess:
        """``Engine.from_model`` in a process of its own.

        Args:
            overlap: run in this process while the other one loads the model.
            prepare: what the other process does first, such as to configure logging; picklable.
        """
        path = locate_model(model)
        config = config or EngineConfig()
        process = cls.__new__(cls)
        factory = partial(load_engine, path, config, prepare)
        process._begin(factory, config.engine_timeout_s)
        with process._closed_on_failure():
            tokenizer = read_tokenizer(open_model(path))
            overlap()
            process._attach(tokenizer, path.stem, configured_template(config, tokenizer))
        return process

    def _begin(self, factory: Callable[[], Engine], timeout_s: float) -> None:
        self._factory = factory
        self._fork_guard = ForkGuard()
        self._lock = threading.RLock()
        self._pending = PendingRequests(self._lock)
        self._answers = PendingAnswers()
        self._closing = threading.Event()
        self._tenant_weights: Mapping[str, float] | None = None
        self._sender: CommandSender | None = None
        self._process: Any = None
        self._started: Future[Ready] = Future()
        self._error: RametError | None = EngineDeadError("the engine is starting")
        self._liveness = Liveness(timeout_s, self._end_late, self._kill)
        self._supervisor = threading.Thread(
            target=self._supervise, name="ramet-engine-client", daemon=True
        )
        self._supervisor.start()
        # At exit Python waits for the other process: without this, a missing close() would hang.
        atexit.register(self.close)

    @contextlib.contextmanager
    def _closed_on_failure(self) -> Iterator[None]:
        """Ends the other process if the block fails, or is interrupted."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def _attach(
        self, tokenizer: Tokenizer, model_name: str, chat_template: ChatTemplate | None
    ) -> None:
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.chat_template = chat_template or own_template(tokenizer)
        ready = self._started.result()
        self.vocab_size = ready.vocab_size
        self.max_context_len = ready.max_context_len
        self.memory_plan = ready.memory_plan
        self.summary = ready.summary
        self.sampling_defaults = ready.sampling_defaults
        self._prompt_memory = MemoryPart("prompts", ready.memory_plan.prompts)
        self._pending.limit_prompts(self._prompt_memory)

    # -- the engine's interface ------------------------------------------------------------------

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that the engine compiles grammars for."""
        from ramet.runtime.engine.grammars.grammar_vocabulary import grammar_vocabulary

        return grammar_vocabulary(self.tokenizer, self.vocab_size)

    @property
    def error(self) -> RametError | None:
        """Why the engine can't serve now; None while it makes progress."""
        return self._error or self._liveness.error

    @property
    def process_id(self) -> int | None:
        """The other process's id, while there is one."""
        return None if self._process is None else int(self._process.pid)

    def submit(self, request: Request) -> RequestStream:
        """Queues a request. What is wrong with the request itself is raised here; a full queue or
        a constraint that can't be honoured ends the stream in ``Failed``."""
        self._fork_guard.require("the engine")
        max_len = check_request(request, vocab_size=self.vocab_size, max_len=self.max_context_len)
        stream = RequestStream(request, abort=self.abort, wakeups=self._pending.wakeups)
        with self._lock:
            if self._error is not None:
                raise self._error
            self._pending.add(stream)
            try:
                self._send(Submit(request, max_len))
            except EngineUnresponsiveError:
                self._pending.remove(request.request_id)
                raise
        return stream

    def abort(self, request_id: str) -> None:
        """Ends a request within one step; unknown and ended ones are ignored, and so are those of
        the process that this one was forked from."""
        if not self._fork_guard.is_owner:
            return
        with self._lock:
            if request_id not in self._pending:
                return
            self._send(Abort(request_id), bounded=False)
            if self._liveness.is_unresponsive:
                self._pending.fail([request_id], RequestAbortedError("the request was aborted"))

    def compile(self, constraint: Constraint, scope: GrammarScope = SHARED) -> Future[None]:
        """See ``Engine.compile``. EngineDeadError if there is no engine now."""
        number, answer = self._await_answer()
        try:
            self._send(Compile(number, constraint, scope))
        except EngineUnresponsiveError:
            self._answers.remove(number)
            raise
        answer.add_done_callback(lambda done: self._forget(number, done))
        return answer

    def _forget(self, number: int, done: Future[None]) -> None:
        """Cancels a compilation that is no longer awaited."""
        if done.cancelled() and self._answers.remove(number):
            self._send(Forget(number), bounded=False)

    def update_hint(self, update: HintUpdate) -> None:
        """Updates what is known of a program's future calls; never waits."""
        self._fork_guard.require("the engine")
        with contextlib.suppress(EngineUnresponsiveError):  # hints may be lost
            self._send(UpdateHint(update))

    def set_tenant_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the tenants' shares, for tokens to come; kept when the process is replaced."""
        self._fork_guard.require("the engine")
        with self._lock:
            self._tenant_weights = weights
            if self._error is None:
                self._send(SetTenantWeights(weights), bounded=False)

    def stats(self) -> EngineStats:
        """Counts as of now; EngineDeadError if the engine doesn't answer."""
        stats: EngineStats = self._ask("stats", _STATS_TIMEOUT_S)
        return dataclasses.replace(stats, prompts=self._prompt_memory.usage())

    def cache_view(self) -> CacheView:
        """See ``Engine.cache_view``."""
        view: CacheView = self._ask("cache_view", _STATS_TIMEOUT_S)
        return view

    def check(self) -> None:
        """Raises InvariantError if a page, a slot or a state is not as it must be."""
        self._ask("check")

    def clear_cache(self) -> int:
        """Evicts every cached page that no request holds; returns how many."""
        return int(self._ask("clear_cache"))

    def close(self) -> None:
        """Ends the other process; requests that still run fail with EngineDeadError.

        An engine that is still starting, or that doesn't end in time, is killed. In a forked
        process it does nothing: the engine is the parent's.
        """
        if not self._fork_guard.is_owner:
            return
        with self._lock:
            self._closing.set()
            if self.error is None:
                self._send(Close(), bounded=False)
            else:
                self._kill()
        end = time.monotonic() + _CLOSE_TIMEOUT_S
        while self._supervisor.is_alive() and time.monotonic() < end:
            self._supervisor.join(0.25)
            if self._liveness.stalled_s > 2 * UNRESPONSIVE_S:
                break
        if self._supervisor.is_alive():
            self._kill()
            self._supervisor.join()
        self._liveness.stop()
        atexit.unregister(self.close)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, question: Question, timeout_s: float = _ANSWER_TIMEOUT_S) -> Any:
        error = self.error
        if error is not None:
            raise error
        number, answer = self._await_answer()
        try:
            self._send(Ask(number, question))
            return answer.result(timeout_s)
        except TimeoutError:
            raise EngineUnresponsiveError("the engine does not answer") from None
        finally:
            self._answers.remove(number)

    def _await_answer(self) -> tuple[int, Future[Any]]:
        """A number for a question, and where its answer will be."""
        self._fork_guard.require("the engine")
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._answers.add()

    def _send(self, command: Command, *, bounded: bool = True) -> None:
        sender = self._sender
        if sender is not None and not sender.send(command, bounded=bounded):
            raise EngineUnresponsiveError("earlier requests still wait for the engine")

    # -- the liveness thread ---------------------------------------------------------------------

    def _end_late(self) -> None:
        """Ends requests whose deadlines have passed without the engine ending them."""
        for request_id in self._pending.fail_late():
            self._send(Abort(request_id), bounded=False)

    # -- the supervisor's thread -----------------------------------------------------------------

    def _supervise(self) -> None:
        restarts = RestartPolicy()
        while not self._closing.is_set():
            started, has_served = time.monotonic(), False
            try:
                has_served = self._run_once()
            except Exception as error:
                logger.critical("the engine's process can't be started", exc_info=error)
                if not self._started.done():
                    self._started.set_exception(error)
            self._liveness.suspend()
            if not self._started.done() or self._started.exception() is not None:
                break
            ran_s = time.monotonic() - started
            pause_s = restarts.next_pause_s(ran_s, has_served=has_served)
            if pause_s is None:
                self._give_up()
                break
            self._closing.wait(pause_s)
        if not self._started.done():
            self._started.set_exception(EngineDeadError("the engine died while it started"))

    def _give_up(self) -> None:
        if self._closing.is_set():
            return
        error = EngineDeadError(
            f"the engine could not be started again in {MAX_FAILED_STARTS} attempts: "
            "restart the server",
            code="engine_not_restarted",
        )
        logger.critical("%s", error)
        with self._lock:
            self._error = error

    def _run_once(self) -> bool:
        """One process, from its start to its end; returns whether it finished its start."""
        ours, theirs = _SPAWN.Pipe()
        process = _SPAWN.Process(
            target=run_engine, args=(theirs, self._factory), name="ramet-engine", daemon=True
        )
        self._liveness.start()
        process.start()
        theirs.close()
        sender = CommandSender(ours)
        with self._lock:
            self._process, self._sender = process, sender
            if self._closing.is_set():
                process.kill()
        try:
            while True:
                self._handle(ours.recv())
        except (EOFError, OSError):
            pass
        finally:
            process.join(timeout=10)
            if process.is_alive():
                process.kill()
                process.join()
            has_served = self._error is None
            self._answer_everybody(process.exitcode)
            sender.stop()
            ours.close()
        return has_served

    def _handle(self, report: Report) -> None:
        match report:
            case Events(events):
                self._pending.deliver(events)
            case Heartbeat(step_s, preparing):
                self._liveness.beat(step_s, preparing=preparing)
            case Answer(number, value, error):
                self._answers.settle(number, value, error)
            case Ready():
                self._liveness.beat(0.0, preparing=False)
                with self._lock:
                    if self._tenant_weights is not None:
                        self._send(SetTenantWeights(self._tenant_weights), bounded=False)
                    self._error = None
                if not self._started.done():
                    self._started.set_result(report)
            case StartFailed(error):
                if not self._started.done():
                    self._started.set_exception(error)
                else:
                    logger.critical("the engine can't be started again", exc_info=error)

    def _answer_everybody(self, exit_code: int | None) -> None:
        closing = self._closing.is_set()
        reason = "has been closed" if closing else f"has died (its exit code is {exit_code})"
        dead = EngineDeadError(f"the engine {reason}")
        if not closing:
            dead = self._liveness.timeout_error or dead
        if not closing and exit_code != 0:  # 0: it has said why it can't start
            logger.critical("the engine's process has died with exit code %s", exit_code)
        with self._lock:
            self._error = dead
            self._sender = None
            self._pending.fail_all(dead)
        self._answers.fail_all(dead)
