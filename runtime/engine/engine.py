"""The engine: a thread that steps while there is work, and the methods that callers use.

Callers post small functions to the step thread, so scheduler and cache belong to that one thread.
``EngineCore.step`` is a step: schedule, run, commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ramet.grammars import Constraint, Vocabulary
from ramet.runtime.api.batch import ModelRunner
from ramet.runtime.api.errors import (
    EngineDeadError,
    ModelLoadError,
    RametError,
    RequestAbortedError,
)
from ramet.runtime.api.events import Event
from ramet.runtime.api.fork_guard import ForkGuard
from ramet.runtime.api.memory import MemoryPart
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import SHARED, GrammarScope, HintUpdate, ProgramHint, Request
from ramet.runtime.api.warm_up import begin_compiling
from ramet.runtime.cache import CacheView, PagePool, RadixCache
from ramet.runtime.engine.chat_templates import own_template
from ramet.runtime.engine.config import EngineConfig, changed
from ramet.runtime.engine.core import EngineCore
from ramet.runtime.engine.daemon_threads import DaemonThreads
from ramet.runtime.engine.grammars.constraint_compiler import ConstraintCompiler
from ramet.runtime.engine.grammars.grammar_manager import GrammarManager, find_first_completion
from ramet.runtime.engine.grammars.grammar_vocabulary import grammar_vocabulary
from ramet.runtime.engine.loading import load_model
from ramet.runtime.engine.memory_plan import MemoryPlan, plan_memory
from ramet.runtime.engine.monitoring.cache_trace import TraceWriter
from ramet.runtime.engine.monitoring.idle_collector import IdleCollector
from ramet.runtime.engine.monitoring.stats import EngineStats
from ramet.runtime.engine.monitoring.step_watchdog import StepWatchdog
from ramet.runtime.engine.prefix_persistence import PrefixPersistence
from ramet.runtime.engine.requests.input_processor import InputProcessor
from ramet.runtime.engine.requests.request_registry import RequestRegistry
from ramet.runtime.engine.requests.request_stream import Completion, RequestStream, Wakeups
from ramet.runtime.engine.sampling_defaults import SamplingDefaults
from ramet.runtime.engine.step_thread import StepThread
from ramet.runtime.scheduler import Scheduler, SequenceState
from ramet.runtime.scheduler.sequence.sequence import Sequence
from ramet.runtime.tokenizer import Tokenizer

if TYPE_CHECKING:
    from ramet.runtime.tokenizer import ChatTemplate

__all__ = ["Engine", "EngineConfig", "EngineStats"]

logger = logging.getLogger("ramet.engine")

T = TypeVar("T")


class Engine:
    """Serves requests with one model.

    It belongs to the process that makes it: in a forked process every method but ``close`` and
    ``abort`` raises ForkedProcessError.

    Args:
        runner: runs the model; the engine closes it.
        tokenizer: its tokenizer.
        model_name: the model's name.
        chat_template: formats chats; None: the tokenizer's own, if it has one.
        fingerprint: identifies the model; ``config.prefix_store`` needs it.
        memory: how memory is divided; None: as ``plan_memory`` does for a model of no known size.
        sampling_defaults: what the model's makers recommend, for callers that ask; see
            ``sampling_defaults``. Requests have their own parameters.
        clock: seconds; deadlines and timings are by it.
        timer: see ``Scheduler``.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        config: EngineConfig | None = None,
        *,
        model_name: str = "model",
        chat_template: ChatTemplate | None = None,
        fingerprint: str = "",
        memory: MemoryPlan | None = None,
        sampling_defaults: SamplingDefaults | None = None,
        clock: Callable[[], float] = time.monotonic,
        timer: Callable[[], float] | None = None,
    ) -> None:
        self.config = config = config or EngineConfig()
        self.memory_plan = memory or plan_memory(config)
        if tokenizer.vocab_size > runner.vocab_size:
            raise ModelLoadError(
                f"the tokenizer has {tokenizer.vocab_size} tokens, but the model's head only "
                f"{runner.vocab_size}"
            )
        self.tokenizer = tokenizer
        self.model_name = model_name
        self.sampling_defaults = sampling_defaults or {}
        self._chat_template = chat_template
        limits = [runner.max_context_len, runner.num_pages * runner.page_size]
        self.max_context_len = min([*limits, config.max_context_len or limits[0]])
        self.error: RametError | None = None
        self._fork_guard = ForkGuard()
        self._runner = runner
        self._mask_threads = DaemonThreads(1, "masks")
        self._cache = RadixCache(PagePool(runner.num_pages, runner.page_size))
        self._scheduler = Scheduler(
            self._cache,
            tokenizer,
            vocab_size=runner.vocab_size,
            max_len=self.max_context_len,
            config=config,
            clock=clock,
            timer=timer,
            on_end=self._note_end,
            run_in_background=self._mask_threads.submit,
        )
        self._prompt_memory = MemoryPart("prompts", self.memory_plan.prompts)
        self._requests = RequestRegistry(self._scheduler, config.max_waiting, self._prompt_memory)
        self._core = EngineCore(self._scheduler, runner, self._deliver, clock)
        self._closing = False
        self._compiler = ConstraintCompiler(
            lambda: self.vocabulary,
            config,
            lambda: not self._closing,
            max_bytes=self.memory_plan.grammars,
        )
        self._grammars = GrammarManager(
            self._compiler.compile,
            self._compiler.find,
            prepare=self._compiler.prepare,
            num_threads=config.grammar_threads,
        )
        self._prefixes = PrefixPersistence(self._cache, runner, config, fingerprint)
        self._trace: TraceWriter | None = None
        if config.record_trace is not None:
            self._trace = TraceWriter(config.record_trace, runner.page_size, clock())
        self._inputs = InputProcessor(
            runner, tokenizer, max_len=self.max_context_len, seed=config.seed, clock=clock
        )
        self._wakeups = Wakeups()
        self._step_listeners: list[Callable[[], None]] = [self._wakeups.flush]
        self._lock = threading.Lock()
        self._thread = StepThread(
            self._core.step, self._core.prepare_ahead, self._core.pause_s, self._shut_down
        )
        self.step_s = self._thread.step_s
        self._watchdog = StepWatchdog(self.step_s, config.engine_timeout_s / 2)
        self._thread.start()
        self._watchdog.start()

    @classmethod
    def from_model(
        cls,
        model: str | Path = "smollm2",
        config: EngineConfig | None = None,
        **settings: Any,
    ) -> Engine:
        """An engine for a model's short name, GGUF file or folder, on ``config.device``.

        ``settings`` are fields of ``EngineConfig`` that replace those of ``config``.

        Raises:
            ModelLoadError: what is wrong with the model, or which names there are.
            UnknownArgumentError: no such setting.
        """
        config = changed(config or EngineConfig(), "Engine.from_model", settings)
        begin_compiling()
        loaded = load_model(model, config)
        with ExitStack() as on_failure:
            on_failure.callback(loaded.runner.close)
            engine = cls(
                loaded.runner,
                loaded.tokenizer,
                loaded.config,
                model_name=loaded.name,
                chat_template=loaded.chat_template,
                fingerprint=loaded.fingerprint,
                memory=loaded.memory,
                sampling_defaults=loaded.sampling_defaults,
                timer=time.perf_counter,
            )
            on_failure.callback(engine.close)
            engine.warm_up()
            on_failure.pop_all()
        return engine

    # -- requests ------------------------------------------------------------------------------

    def submit(self, request: Request) -> RequestStream:
        """Queues a request. What is wrong with the request itself is raised here.

        A constraint is compiled in another thread; one that can't be honoured ends the stream in
        ``Failed`` before anything is generated. Safe from any thread.
        """
        stream = RequestStream(request, abort=self.abort, wakeups=self._wakeups)
        self.submit_to(request, stream.push)
        return stream

    def submit_to(
        self, request: Request, push: Callable[[Event], None], max_len: int | None = None
    ) -> None:
        """Callback variant of ``submit``: events are pushed on the step thread.

        ``push`` must be quick; listeners of ``add_step_listener`` are called after a step's events.
        ``max_len`` is the result of ``check_request``, if the request has been checked already.
        """
        self._fork_guard.require("the engine")
        sequence = self._inputs.process(request, push, max_len)
        self._scheduler.index_prompt(sequence)  # here, as the step thread is busier
        if request.constraint is None:
            self._requests.register(sequence)
            self._thread.post(lambda: self._scheduler.add(sequence))
            return
        grammar = self._grammars.get(
            request.constraint,
            lambda: sequence.state is not SequenceState.FINISHED,
            request.grammar_scope,
        )
        try:
            self._requests.register(sequence)
        except RametError:
            sequence.state = SequenceState.FINISHED  # its grammar need not be compiled
            raise
        self._thread.post(lambda: self._scheduler.hold(sequence))
        if request.complete is not False:
            grammar.add_done_callback(find_first_completion)
        grammar.add_done_callback(
            lambda done: self._thread.post(lambda: self._core.add_compiled(sequence, done))
        )

    def compile(self, constraint: Constraint, scope: GrammarScope = SHARED) -> Future[None]:
        """Compiles a constraint ahead of its requests; safe from any thread.

        The future's error is an InvalidConstraintError for one that can't be honoured. Cancelling
        it cancels no compilation that others wait for, or that has begun.
        """
        self._fork_guard.require("the engine")
        return self._grammars.compile(constraint, scope)

    def add_step_listener(self, listener: Callable[[], None]) -> None:
        """Has the step thread call ``listener`` after a step's events; it must be quick."""
        self._step_listeners.append(listener)

    def collect_when_idle(self, collector: IdleCollector) -> None:
        """Has this process's full garbage collections run between steps, when there are none."""
        self._core.collect_when_idle(collector)
        self._grammars.on_prepared = collector.exclude_survivors
        self._thread.wake()

    def abort(self, request_id: str) -> None:
        """Ends a request within one step, in any state; unknown and ended ones are ignored.

        Does nothing in a forked process.
        """
        if self._fork_guard.is_owner:
            error = RequestAbortedError("the request was aborted")
            self._thread.post(lambda: self._requests.release(request_id, error))

    def update_hint(self, update: HintUpdate) -> None:
        """Updates what is known of a program's future calls; safe from any thread."""
        self._fork_guard.require("the engine")
        self._thread.post(lambda: self._scheduler.update_hint(update))

    def set_tenant_weights(self, weights: Mapping[str, float]) -> None:
        """Replaces the tenants' shares, for tokens to come; safe from any thread."""
        self._fork_guard.require("the engine")
        self._thread.post(lambda: self._scheduler.set_tenant_weights(weights))

    def generate(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        hint: ProgramHint | None = None,
    ) -> Completion:
        """Completes a prompt; an interrupted wait aborts the request.

        Without ``params.max_tokens`` the output may fill the context, as in the HTTP APIs; the
        ``gen`` of a program has a default of its own.
        """
        with self.submit(self._inputs.request(prompt, params, constraint, hint)) as stream:
            return stream.result()

    async def agenerate(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        hint: ProgramHint | None = None,
    ) -> Completion:
        """``generate`` for asyncio; cancelling it aborts the request."""
        return await self.submit(self._inputs.request(prompt, params, constraint, hint)).aresult()

    # -- the engine itself ---------------------------------------------------------------------

    @property
    def summary(self) -> str:
        """The model, what it runs on, and how much fits, in one line."""
        num_tokens = self._runner.num_pages * self._runner.page_size
        return (
            f"{self._runner.description}; context of {self.max_context_len:,} tokens, "
            f"KV cache of {num_tokens:,}"
        )

    @property
    def vocab_size(self) -> int:
        """The width of the model's head; token ids are below it."""
        return self._runner.vocab_size

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """The chat template; ModelLoadError if it isn't valid Jinja."""
        return self._chat_template or own_template(self.tokenizer)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that grammars are compiled for, as wide as the model's head."""
        return grammar_vocabulary(self.tokenizer, self._runner.vocab_size)

    def stats(self) -> EngineStats:
        """Current counts; safe from any thread."""
        self._fork_guard.require("the engine")
        return EngineStats.collect(
            self._scheduler,
            self._cache,
            self._requests.num_unscheduled,
            self._compiler.stats(),
            self._prompt_memory.usage(),
        )

    def cache_view(self) -> CacheView:
        """The prefixes in the cache, as people see them."""
        return self._ask(self._cache.view)

    def check(self) -> None:
        """Raises InvariantError if a page, a slot or a state is inconsistent."""
        self._ask(self._scheduler.check)

    def warm_up(self) -> None:
        """Loads what steps need before the first request, and leaves no trace in the counts.

        What constraints need is loaded afterwards in a compiling thread: the first constraints wait
        for that, and at an installation's first start for JIT compilation.
        """
        params = SamplingParams(temperature=1.0, top_p=0.9, seed=0, max_tokens=4)
        prompt = [self.tokenizer.bos_id or 0] * 2
        hint = ProgramHint(program_id="warm-up", remaining_uses=0)
        self.generate(prompt, params, hint=hint)
        self._ask(lambda: self._cache.evict(1))  # the page that it has left: it is evicted first
        self._ask(self._scheduler.stats.reset)
        self._grammars.run_first(self._compiler.warm_up)

    def save_prefixes(self) -> int:
        """Stores hot prefixes in ``config.prefix_store`` now; returns the number of pages."""
        return self._ask(self._prefixes.save)

    def clear_cache(self) -> int:
        """Evicts every cached page that is not held; returns how many."""
        return self._ask(self._cache.clear)

    def close(self) -> None:
        """Ends the thread and the runner; requests that still run fail with EngineDeadError.

        Does nothing in a forked process, where all of it is the parent's.
        """
        if not self._fork_guard.is_owner:
            return
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._requests.close(self.error or EngineDeadError("the engine has been closed"))
        self._thread.stop()
        self._watchdog.stop()
        self._grammars.close()
        self._mask_threads.close()
        self._runner.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, question: Callable[[], T]) -> T:
        """The step thread's answer; see ``StepThread.ask``."""
        self._fork_guard.require("the engine")
        return self._thread.ask(question)

    # -- on the step thread --------------------------------------------------------------------

    def _deliver(self) -> None:
        for listener in self._step_listeners:
            listener()

    def _note_end(self, sequence: Sequence) -> None:
        self._requests.remove(sequence)
        if self._trace is not None and sequence.scheduled_time is not None:
            self._trace.add(
                sequence.request, sequence.known, sequence.num_output, sequence.submit_time
            )

    def _shut_down(self, fault: Exception | None) -> None:
        """Fails all live requests."""
        reason = EngineDeadError("the engine has been closed")
        if fault is not None:
            message = f"the engine has died: {type(fault).__name__}: {fault}"
            self.error = reason = EngineDeadError(message)
            reason.__cause__ = fault
        self._requests.close(reason)
        if fault is None:
            try:
                self._prefixes.save()
            except Exception:  # requests must be answered all the same
                logger.exception("prefixes were not stored")
        self._core.release_all(self._requests.live(), reason)
        if self._trace is not None:
            self._trace.close()
        self._deliver()
