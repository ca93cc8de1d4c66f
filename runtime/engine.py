"""The engine: a thread that steps while there is work, and the way in for everybody else.

Callers talk to the step thread through an inbox of small functions, so scheduler and cache belong
to that one thread. A step, as everywhere in this package::

    step = scheduler.schedule()
    logits = runner.run(step.batch)
    result = sampler.sample(logits, step.batch.sampling)
    scheduler.commit(step, result)

``Stepper`` has that, and what becomes of faults.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Seq
from concurrent.futures import Future
from functools import cached_property
from pathlib import Path
from typing import Any

from ramet.grammars import Vocabulary, compile_constraint
from ramet.grammars.constraints import Constraint
from ramet.runtime.admission import check_request
from ramet.runtime.batch import ModelRunner, SamplingRunner
from ramet.runtime.cache import PagePool, RadixCache
from ramet.runtime.engine_config import EngineConfig, EngineStats
from ramet.runtime.errors import (
    EngineDeadError,
    InvalidParameterError,
    QueueFullError,
    RametError,
    RequestAbortedError,
)
from ramet.runtime.events import Event, Failed, Usage
from ramet.runtime.grammar_pool import CompiledGrammar, GrammarPool
from ramet.runtime.model.load import open_model
from ramet.runtime.model.runners import load_runner
from ramet.runtime.params import SamplingParams
from ramet.runtime.request import ProgramHint, Request
from ramet.runtime.request_stream import Completion, RequestStream, Wakeups
from ramet.runtime.scheduler import Scheduler, SequenceState
from ramet.runtime.scheduler.restrictions import Restrictions, TokenTexts
from ramet.runtime.scheduler.sequence import Sequence
from ramet.runtime.stepper import Stepper, TokenSampler
from ramet.runtime.streams import OutputStream
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer

__all__ = ["Engine", "EngineConfig", "EngineStats"]

logger = logging.getLogger("ramet.engine")


class Engine:
    """Serves requests with one model.

    Args:
        runner: runs the model; the engine closes it.
        tokenizer: its tokenizer.
        model_name: what the model is called.
        chat_template: how its chats are printed; None: the tokenizer's own, if it has one.
        sampler: picks tokens from logits; None: the runner's own, or the compiled one.
        clock: seconds; deadlines and timings are by it.
    """

    def __init__(
        self,
        runner: ModelRunner,
        tokenizer: Tokenizer,
        config: EngineConfig | None = None,
        *,
        model_name: str = "model",
        chat_template: ChatTemplate | None = None,
        sampler: TokenSampler | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config = config or EngineConfig()
        self.tokenizer = tokenizer
        self.model_name = model_name
        if chat_template is None and tokenizer.chat_template is not None:
            chat_template = ChatTemplate(tokenizer.chat_template, tokenizer)
        self.chat_template = chat_template
        limits = [runner.max_context_len, runner.num_pages * runner.page_size]
        self.max_context_len = min([*limits, config.max_context_len or limits[0]])
        self.error: RametError | None = None
        self._runner = runner
        self._clock = clock
        self._cache = RadixCache(PagePool(runner.num_pages, runner.page_size))
        self._scheduler = Scheduler(
            self._cache,
            tokenizer,
            vocab_size=runner.vocab_size,
            max_len=self.max_context_len,
            config=config,
            clock=clock,
            on_end=self._note_end,
        )
        if sampler is None and not isinstance(runner, SamplingRunner):
            sampler = _default_sampler()
        self._stepper = Stepper(self._scheduler, runner, sampler)
        self._grammars = GrammarPool(
            self._compile, num_threads=config.grammar_threads, max_grammars=config.max_grammars
        )
        self._seeds = random.Random(config.seed)
        self._wakeups = Wakeups()
        self._step_listeners: list[Callable[[], None]] = [self._wakeups.flush]
        self._lock = threading.Lock()
        self._inbox: deque[Callable[[], None]] = deque()
        self._live: dict[str, Sequence] = {}
        self._ended: list[Sequence] = []
        self._num_compiling = 0
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ramet-engine", daemon=True)
        self._thread.start()

    @classmethod
    def from_model(
        cls, model: str | Path = "smollm2", config: EngineConfig | None = None
    ) -> Engine:
        """An engine for a model's short name, GGUF file or folder, on ``config.device``.

        ModelLoadError says what is wrong with the model, or which names there are.
        """
        config = config or EngineConfig()
        file = open_model(model)
        runner = load_runner(
            file,
            device=config.device,
            num_pages=config.num_pages,
            page_size=config.page_size,
            kv_bytes=config.cache_bytes,
            num_threads=config.num_threads,
        )
        return cls(runner, Tokenizer.from_gguf(file), config, model_name=Path(model).stem)

    # -- requests ------------------------------------------------------------------------------

    def submit(self, request: Request) -> RequestStream:
        """Queues a request. What is wrong with the request itself is raised here.

        A constraint is compiled meanwhile, elsewhere; one that can't be honoured ends the stream
        in ``Failed`` before anything is generated. Safe from any thread.
        """
        stream = RequestStream(request, abort=self.abort, wakeups=self._wakeups)
        self.submit_to(request, stream.push)
        return stream

    def submit_to(self, request: Request, push: Callable[[Event], None]) -> None:
        """``submit`` for who takes the events as they are made, on the step's thread.

        ``push`` must be quick; ``add_step_listener`` tells when a step's events are complete.
        """
        max_len = check_request(
            request, vocab_size=self._runner.vocab_size, max_len=self.max_context_len
        )
        params = request.params
        with self._lock:
            seed = self._seeds.getrandbits(63) if params.seed is None else params.seed
        sequence = Sequence(
            request,
            max_len=max_len,
            seed=seed % 2**64,
            text=OutputStream(params, self.tokenizer.special_ids),
            restrictions=Restrictions(params, self.tokenizer.eos_ids, self._token_texts),
            emit=push,
            submit_time=self._clock(),
        )
        future = None if request.constraint is None else self._grammars.get(request.constraint)
        self._register(sequence)
        if future is None:
            self._post(lambda: self._start(sequence))
        else:
            future.add_done_callback(lambda done: self._post(lambda: self._start(sequence, done)))

    def add_step_listener(self, listener: Callable[[], None]) -> None:
        """Has the step's thread call ``listener`` after each step's events; it must be quick."""
        self._step_listeners.append(listener)

    def abort(self, request_id: str) -> None:
        """Ends a request within one step, wherever it is; unknown and ended ones are ignored."""
        self._post(lambda: self._end(request_id, RequestAbortedError("the request was aborted")))

    def generate(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        hint: ProgramHint | None = None,
    ) -> Completion:
        """Completes a prompt, and waits for it."""
        return self.submit(self._request(prompt, params, constraint, hint)).result()

    async def agenerate(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None = None,
        *,
        constraint: Constraint | None = None,
        hint: ProgramHint | None = None,
    ) -> Completion:
        """``generate`` for asyncio; cancelling it aborts the request."""
        return await self.submit(self._request(prompt, params, constraint, hint)).aresult()

    def _request(
        self,
        prompt: str | Seq[int],
        params: SamplingParams | None,
        constraint: Constraint | None,
        hint: ProgramHint | None,
    ) -> Request:
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt, add_bos=self.tokenizer.adds_bos)
        return Request(
            prompt_token_ids=tuple(prompt),
            params=params or SamplingParams(),
            constraint=constraint,
            hint=hint,
        )

    # -- the engine itself ---------------------------------------------------------------------

    @property
    def vocab_size(self) -> int:
        """The width of the model's head; token ids are below it."""
        return self._runner.vocab_size

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that grammars are compiled for, as wide as the model's head."""
        return grammar_vocabulary(self.tokenizer, self._runner.vocab_size)

    def stats(self) -> EngineStats:
        """Counts as of now; safe from any thread."""
        return EngineStats.collect(self._scheduler, self._cache, self._num_compiling)

    def check(self) -> None:
        """Raises InvariantError if a page, a slot or a state is not as it must be."""
        self._ask(self._scheduler.check)

    def clear_cache(self) -> int:
        """Evicts every cached page that nobody holds; returns how many."""
        return int(self._ask(self._cache.clear))

    def close(self) -> None:
        """Ends the thread and the runner; requests that still run fail with EngineDeadError."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake.set()
        self._thread.join()
        self._grammars.close()
        self._runner.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the callers' threads ---------------------------------------------------------------

    @cached_property
    def _token_texts(self) -> TokenTexts:
        return TokenTexts(self.tokenizer.vocabulary, self._runner.vocab_size)

    def _compile(self, constraint: Constraint) -> CompiledGrammar:
        return compile_constraint(constraint, self.vocabulary)

    def _register(self, sequence: Sequence) -> None:
        """Takes responsibility for a request: from here on it gets its one terminal event."""
        request, limit = sequence.request, self.config.max_waiting
        with self._lock:
            if self._closing or self.error is not None:
                raise self.error or EngineDeadError("the engine has been closed")
            if request.request_id in self._live:
                raise InvalidParameterError(
                    f"a request {request.request_id!r} is running already", param="request_id"
                )
            excess = len(self._live) - self._scheduler.num_running - limit + 1
            if excess > 0:
                raise QueueFullError(
                    f"{limit} requests are waiting, and that is the limit",
                    retry_after_s=self._scheduler.stats.expected_wait_s(excess),
                )
            self._live[request.request_id] = sequence
            self._num_compiling += request.constraint is not None

    def _post(self, command: Callable[[], None]) -> None:
        self._inbox.append(command)
        self._wake.set()

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Runs ``question`` on the step thread between two steps, and returns its answer."""
        answer: Future[Any] = Future()

        def command() -> None:
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        self._post(command)
        while self._thread.is_alive():
            try:
                return answer.result(timeout=0.2)
            except TimeoutError:
                if answer.done():
                    raise
        return answer.result(timeout=0) if answer.done() else question()

    # -- on the step thread --------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing and self.error is None:
            self._wake.clear()
            try:
                self._handle_inbox()
                worked = self._stepper.step()
            except Exception as error:
                self._die(error)
                break
            self._forget_ended()
            self._tell_listeners()
            if not worked and not self._inbox and not self._closing:
                self._wake.wait(None if self._scheduler.idle else 0.001)
        self._shut_down()

    def _handle_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _start(self, sequence: Sequence, grammar: Future[CompiledGrammar] | None = None) -> None:
        """Queues a sequence whose grammar, if it has one, is ready or has failed."""
        if sequence.state is SequenceState.FINISHED:
            return
        self._num_compiling -= grammar is not None
        error: BaseException | None = None
        if grammar is not None:
            sequence.grammar_s = self._clock() - sequence.submit_time
            error = EngineDeadError("closed") if grammar.cancelled() else grammar.exception()
            if error is None:
                try:
                    sequence.matcher = grammar.result().matcher()
                except Exception as fault:
                    error = fault
        if error is None:
            try:
                self._scheduler.add(sequence)
            except RametError as refused:
                error = refused
        if error is not None:
            self._refuse(sequence, error)

    def _refuse(self, sequence: Sequence, error: BaseException) -> None:
        """Ends a sequence that the scheduler has never seen."""
        if not isinstance(error, RametError):
            error = RametError(f"the request failed inside the engine: {error}")
        sequence.state = SequenceState.FINISHED
        self._ended.append(sequence)
        sequence.emit(Failed(error, Usage(prompt_tokens=sequence.num_prompt)))

    def _end(self, request_id: str, error: RametError) -> None:
        sequence = self._live.get(request_id)
        if sequence is None or sequence.state is SequenceState.FINISHED:
            return
        if self._scheduler.knows(sequence):
            self._scheduler.release(sequence, error)
        else:
            self._num_compiling -= sequence.request.constraint is not None
            self._refuse(sequence, error)

    def _note_end(self, sequence: Sequence) -> None:
        self._ended.append(sequence)

    def _forget_ended(self) -> None:
        ended, self._ended = self._ended, []
        if ended:
            with self._lock:
                for sequence in ended:
                    del self._live[sequence.request.request_id]

    def _die(self, error: Exception) -> None:
        logger.critical("the engine has died", exc_info=error)
        dead = EngineDeadError(f"the engine has died: {type(error).__name__}: {error}")
        dead.__cause__ = error
        self.error = dead

    def _shut_down(self) -> None:
        """Answers everybody who still waits."""
        reason = self.error or EngineDeadError("the engine has been closed")
        with self._lock:
            self._closing = True
            live = list(self._live.values())
            self._live.clear()
        for sequence in live:
            if sequence.state is SequenceState.FINISHED:
                continue
            try:
                if self._scheduler.knows(sequence):
                    self._scheduler.release(sequence, reason)
                else:
                    self._refuse(sequence, reason)
            except Exception:  # its bookkeeping is broken; its caller still gets an answer
                self._refuse(sequence, reason)
        self._tell_listeners()

    def _tell_listeners(self) -> None:
        for listener in self._step_listeners:
            listener()


def grammar_vocabulary(tokenizer: Tokenizer, vocab_size: int) -> Vocabulary:
    """A tokenizer's tokens as a vocabulary as wide as a model's head."""
    tokens = tokenizer.vocabulary
    padding: list[bytes | None] = [None] * (vocab_size - len(tokens))
    return Vocabulary.from_tokens(tokens + padding, set(tokenizer.eos_ids))


def _default_sampler() -> TokenSampler:
    from ramet.runtime.sampler import Sampler

    return Sampler()
