"""``@program``: a function whose calls to a model Ramet runs as a graph."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import secrets
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from ramet.lang.backends.choose import BackendLike, as_backend, default_backend
from ramet.lang.backends.recorded import RecordedBackend
from ramet.lang.base.errors import ArgumentError, UsageError
from ramet.lang.base.event_loop import on_shared_loop, shared_loop
from ramet.lang.base.frames import caller_place
from ramet.lang.batching import Batch, BatchOptions
from ramet.lang.graph.explain import Explanation, explain
from ramet.lang.graph.graph import RequestGraph
from ramet.lang.run.dry_run import dry_run
from ramet.lang.run.outcomes import DryRunStopped
from ramet.lang.run.run import Bind, Run
from ramet.lang.run.run_options import RunOptions
from ramet.lang.run.session import current_caller
from ramet.lang.run.state import State
from ramet.lang.trace.trace import Trace
from ramet.lang.types.options import SamplingOptions, sampling_params
from ramet.lang.types.values import Value
from ramet.runtime.api.names import nearest
from ramet.runtime.api.params import PARAM_ALIASES

P = ParamSpec("P")
T = TypeVar("T")

_SAMPLING_NAMES = frozenset(SamplingOptions.__annotations__) - {"seed"}
_SETTING_NAMES = frozenset(
    (
        *("backend", "seed", "cache_salt", "priority", "hints", "prefill_ahead"),
        *("timeout_s", "chat_template_kwargs"),
    )
)
_RUN_NAMES = _SAMPLING_NAMES | _SETTING_NAMES | set(PARAM_ALIASES)


class SupportsEncode(Protocol):
    """A tokenizer, as far as counting needs one."""

    def encode(self, text: str) -> Sequence[int]: ...


class Program(Generic[P, T]):
    """A program. ``run`` runs it; calling it with a state runs it as a part of another program.

    ``run``, ``start``, ``stream`` and ``arun`` take the function's own arguments and, by name,
    settings: ``backend``, ``seed``, ``cache_salt``, ``priority``, ``hints``, ``prefill_ahead``,
    ``timeout_s``, ``chat_template_kwargs`` and any sampling parameter as a default for the run's
    calls. ``using(...)`` sets them beforehand, which leaves ``run`` with the function's own
    signature for type checkers.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature = inspect.signature(function)
        parameters = list(self._signature.parameters)
        self._parameters = parameters[1:]
        if not parameters:
            raise UsageError("a program's first parameter is its state: def program(s, ...)")
        self.function = function
        self._own_names = frozenset(parameters)
        self._settings: dict[str, Any] = {}
        self._original = self
        functools.update_wrapper(self, function)
        self.name: str = getattr(function, "__name__", "program")

    def __call__(self, s: State, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs the program on the state of another; that of an async program is awaited."""
        if not isinstance(s, State):
            raise UsageError(
                f"{self.name}(...) takes a state, inside a program; elsewhere use "
                f"{self.name}.run(...)"
            )
        result: T = self.function(s, *args, **kwargs)
        return result

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickles a program by its name in its module, as functions are."""
        if self is self._original:
            return self.function.__qualname__
        return _with_settings, (self._original, self._settings)

    def __repr__(self) -> str:
        return f"<program {self.name}>"

    def using(self, **settings: Any) -> Program[P, T]:
        """The same program with settings for its runs."""
        self._check_settings(settings, _RUN_NAMES)
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._settings = {**self._settings, **settings}
        return other

    @overload
    def run(self, *args: P.args, **kwargs: P.kwargs) -> Run[T]: ...
    @overload
    def run(self, *args: Any, backend: BackendLike, **kwargs: Any) -> Run[T]: ...
    def run(self, *args: Any, **kwargs: Any) -> Run[Any]:
        """Runs the program and waits for its end.

        ``stream=True`` doesn't wait: the run goes on while its text is read.

        Raises:
            NodeFailedError: a call failed; it names the node and keeps the finished values.
            UsageError: the program is wrong; nothing was sent for the part that is.
        """
        stream = bool(kwargs.pop("stream", False)) if "stream" not in self._own_names else False
        run = self._make_run(args, kwargs)
        return run.begin() if stream else run.wait()

    @overload
    def start(self, *args: P.args, **kwargs: P.kwargs) -> Run[T]: ...
    @overload
    def start(self, *args: Any, backend: BackendLike, **kwargs: Any) -> Run[T]: ...
    def start(self, *args: Any, **kwargs: Any) -> Run[Any]:
        """Starts the program and returns its run immediately."""
        return self._make_run(args, kwargs).begin()

    @overload
    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Run[T]: ...
    @overload
    def stream(self, *args: Any, backend: BackendLike, **kwargs: Any) -> Run[T]: ...
    def stream(self, *args: Any, **kwargs: Any) -> Run[Any]:
        """The same as ``start``: iterate the run's ``events`` or ``text_iter()``."""
        return self._make_run(args, kwargs).begin()

    @overload
    async def arun(self, *args: P.args, **kwargs: P.kwargs) -> Run[T]: ...
    @overload
    async def arun(self, *args: Any, backend: BackendLike, **kwargs: Any) -> Run[T]: ...
    async def arun(self, *args: Any, **kwargs: Any) -> Run[Any]:
        """Runs the program on the caller's own event loop and waits for its end."""
        return await self._make_run(args, kwargs, asyncio.get_running_loop()).begin()

    def run_batch(
        self,
        batch: Iterable[Mapping[str, Any]],
        *,
        max_concurrency: int = 64,
        reorder: bool = True,
        progress: bool = False,
        resume: str | Path | None = None,
        **settings: Any,
    ) -> list[Run[T]]:
        """Runs the program once for each mapping of arguments; runs come back in that order.

        They start in an order in which arguments that agree are neighbours, so that what their
        prompts share is computed once and used while it is cached; ``reorder=False`` starts them
        in the batch's own. ``progress`` shows a bar on the terminal or in the notebook. A run that
        fails doesn't end the others: it has an ``error``, and its ``result`` raises.

        ``resume`` is a file to which each run that ends well is written; a batch that was cut off
        goes on from it, without asking the model again for what the file has.
        """
        return self._batch(
            batch,
            settings,
            max_concurrency=max_concurrency,
            reorder=reorder,
            progress=progress,
            resume=resume,
        ).run()

    async def arun_batch(self, batch: Iterable[Mapping[str, Any]], **options: Any) -> list[Run[T]]:
        """``run_batch`` on the caller's own event loop."""
        return await self._batch(batch, options).arun()

    def as_completed(
        self, batch: Iterable[Mapping[str, Any]], **options: Any
    ) -> Iterator[tuple[int, Run[T]]]:
        """Runs a batch and yields each run with its index in the batch, as it ends.

        Takes what ``run_batch`` does. Closing the iterator cancels what still runs.
        """
        return self._batch(batch, options).as_completed()

    def start_item(
        self,
        arguments: Mapping[str, Any],
        recorded: Trace | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> Run[T]:
        """Starts a run with arguments alone; ``recorded`` is a trace of one, whose answers it
        gets again."""
        program = self if recorded is None else self.using(seed=recorded.seed)
        run: Run[T] = program._make_run((), dict(arguments), loop, recorded)
        return run.begin()

    def _batch(
        self, batch: Iterable[Mapping[str, Any]], settings: Mapping[str, Any], **options: Any
    ) -> Batch[T]:
        names = [field.name for field in dataclasses.fields(BatchOptions)]
        own = {name: value for name, value in settings.items() if name not in names}
        options |= {name: settings[name] for name in settings.keys() - own.keys()}
        self._check_settings(own, _RUN_NAMES | set(names))
        program = self.using(**own) if own else self
        return Batch(program, list(batch), BatchOptions(**options))

    def graph(self, *args: Any, **kwargs: Any) -> RequestGraph:
        """The program's RequestGraph for these arguments, with no model.

        A dry run ends where the program reads a value; ``graph.open_ends`` names the places.
        """
        values, options, _ = self._settle(kwargs)
        self._bound(args, values)
        return dry_run(self.name, self._binder(args, values), options)

    def check_arguments(self, *args: Any, **kwargs: Any) -> None:
        """Raises ArgumentError where a run with these arguments would, and starts nothing."""
        values, _, _ = self._settle(kwargs)
        self._bound(args, values)

    def explain(
        self, *args: Any, tokenizer: SupportsEncode | None = None, **kwargs: Any
    ) -> Explanation:
        """What a run will cost, as far as its graph shows: print it, or read its fields.

        ``tokenizer`` (an engine's, for instance) makes the lengths tokens; else they are
        characters.
        """
        count = None if tokenizer is None else lambda text: len(tokenizer.encode(text))
        return explain(self.graph(*args, **kwargs), count)

    def _make_run(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        loop: asyncio.AbstractEventLoop | None = None,
        recorded: Trace | None = None,
    ) -> Run[Any]:
        values, options, chosen = self._settle(kwargs)
        arguments = self._bound(args, values)
        if loop is None and on_shared_loop():
            loop = asyncio.get_running_loop()
        caller = current_caller.get()
        inherited = None if caller is None else caller.session.backend
        if caller is not None and inherited is None:
            raise DryRunStopped("", caller_place())
        if chosen is not None:
            backend = as_backend(chosen)
        else:
            backend = inherited or default_backend()
        if recorded is not None:
            backend = RecordedBackend(recorded, backend)
        run: Run[Any] = Run(
            self.name,
            self._binder(args, values),
            backend,
            options,
            loop or shared_loop(),
            arguments,
        )
        if caller is not None:
            caller.session.add_nested(run)
        return run

    def _bound(self, args: tuple[Any, ...], values: Mapping[str, Any]) -> dict[str, Any]:
        """The program's arguments by parameter.

        Raises:
            ArgumentError: the program doesn't take them.
        """
        try:
            bound = self._signature.bind(None, *args, **values)
        except TypeError as error:
            wrong = next((name for name in values if name not in self._own_names), None)
            if wrong is None:
                raise ArgumentError(f"{self.name}: {error}") from None
            hint = nearest(wrong, [*self._parameters, *_RUN_NAMES])
            message = f"{self.name} takes no argument {wrong!r}, and a run no such setting{hint}"
            raise ArgumentError(message, param=wrong) from None
        return dict(list(bound.arguments.items())[1:])

    def _check_settings(self, settings: Mapping[str, Any], known: Collection[str]) -> None:
        for name in settings:
            if name not in _RUN_NAMES:
                message = f"a run has no setting {name!r}{nearest(name, known)}"
                raise ArgumentError(message, param=name)

    def _settle(
        self, kwargs: Mapping[str, Any]
    ) -> tuple[dict[str, Any], RunOptions, BackendLike | None]:
        """Splits keyword arguments into the function's own and the run's settings."""
        settings, values = dict(self._settings), dict[str, Any]()
        for name, value in kwargs.items():
            is_own = name in self._own_names
            if not is_own and (name in _SETTING_NAMES or _is_sampling(name)):
                settings[name] = value
            else:
                values[name] = value
        backend = settings.pop("backend", None)
        sampling = {
            PARAM_ALIASES.get(name, name): settings.pop(name)
            for name in list(settings)
            if _is_sampling(name)
        }
        sampling_params(sampling, {})  # raises on a bad value before anything runs
        caller = current_caller.get()
        if caller is not None:
            inherited = caller.session.options
            settings = {
                "cache_salt": inherited.cache_salt,
                "priority": inherited.priority,
                **settings,
            }
        if settings.get("seed") is None:
            settings["seed"] = secrets.randbits(62) if caller is None else caller.next_seed()
        return values, RunOptions(sampling=sampling, **settings), backend

    def _binder(self, args: tuple[Any, ...], values: Mapping[str, Any]) -> Bind:
        return lambda _, writer: functools.partial(self.function, State(writer), *args, **values)


def _with_settings(program: Program[..., Any], settings: dict[str, Any]) -> Program[..., Any]:
    return program.using(**settings)


def _is_sampling(name: str) -> bool:
    return name in _SAMPLING_NAMES or name in PARAM_ALIASES


@overload
def program(function: Callable[Concatenate[State, P], Awaitable[Value[T]]], /) -> Program[P, T]: ...  # type: ignore[overload-overlap, unused-ignore]
@overload
def program(function: Callable[Concatenate[State, P], Awaitable[T]], /) -> Program[P, T]: ...  # type: ignore[overload-overlap, unused-ignore]
@overload
def program(function: Callable[Concatenate[State, P], Value[T]], /) -> Program[P, T]: ...  # type: ignore[overload-overlap, unused-ignore]
@overload
def program(function: Callable[Concatenate[State, P], T], /) -> Program[P, T]: ...
def program(function: Callable[..., Any], /) -> Program[..., Any]:
    """Makes a function a Program. Its first parameter is the state.

    A plain function may read values anywhere; an ``async def`` awaits them. What the function
    returns, with all Values in it resolved, is the run's ``result``.
    """
    return Program(function)
