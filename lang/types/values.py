"""``Value``: a node's future result, usable in prompts before it is resolved."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, Generic, Protocol, TypeVar, overload

from pydantic_core import to_json

from ramet.lang.graph.references import Ref
from ramet.runtime.api.events import Timings, TokenInfo, Usage

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata of a call.

    Attributes:
        finish_reason: ``stop`` or ``length``; None for nodes that aren't calls.
        choice_scores: a Select's score of each choice, by its text.
        tokens: the generated tokens, where the backend gives them.
    """

    finish_reason: str | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    choice_scores: dict[str, float] = field(default_factory=dict)
    tokens: tuple[TokenInfo, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeResult:
    """A finished node: its text as prompts hold it, and its value as Python sees it."""

    text: str
    value: Any
    meta: Meta = field(default_factory=Meta)


class Results(Protocol):
    """The part of a run that a Value uses."""

    def reference(self, ref: Ref) -> str:
        """The token that stands for a value in text."""
        ...

    def wait_for(self, node_id: str) -> NodeResult:
        """Waits for a node in whatever way the caller can wait."""
        ...

    async def wait_async(self, node_id: str) -> NodeResult:
        """Waits for a node on the caller's event loop."""
        ...

    def is_settled(self, node_id: str) -> bool:
        """Whether the node has finished or failed."""
        ...


class Value(Generic[T_co]):
    """The result of a node, which may still be pending.

    Put it into an f-string or append it to a state: that adds an edge to the graph and does not
    wait. Everything else that reads it (``.value``, ``await``, ``str()``, ``int()``, ``if``,
    ``==``, iteration, indexing, an attribute of the value) waits for this value alone. In an
    ``async def`` program only ``await`` can wait.

    A call that failed raises NodeFailedError when it is read.
    """

    __slots__ = ("_node_id", "_results")

    def __init__(self, results: Results, node_id: str) -> None:
        self._results = results
        self._node_id = node_id

    @property
    def value(self) -> T_co:
        """The value itself; waits."""
        result: T_co = self._results.wait_for(self._node_id).value
        return result

    @property
    def text(self) -> str:
        """The text as the model wrote it; waits."""
        return self._results.wait_for(self._node_id).text

    @property
    def meta(self) -> Meta:
        """Finish reason, usage, timings and scores; waits."""
        return self._results.wait_for(self._node_id).meta

    @property
    def is_ready(self) -> bool:
        """Whether reading it would not wait."""
        return self._results.is_settled(self._node_id)

    @property
    def node_id(self) -> str:
        """The node's place in the run's graph."""
        return self._node_id

    def __await__(self) -> Generator[Any, None, T_co]:
        return self._await_value().__await__()

    async def _await_value(self) -> T_co:
        result: T_co = (await self._results.wait_async(self._node_id)).value
        return result

    # A reference: no waiting.

    def __format__(self, spec: str) -> str:
        return self._results.reference(Ref(self._node_id, spec))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, str):
            return f"{self}{other}"
        if isinstance(other, Value):
            return self.value + other.value
        return self.value + other

    def __radd__(self, other: Any) -> Any:
        return f"{other}{self}" if isinstance(other, str) else other + self.value

    def __repr__(self) -> str:
        if self.is_ready:
            try:
                return repr(self.value)
            except Exception as error:
                return f"<Value {self._node_id}: {error}>"
        return f"<Value {self._node_id}: pending>"

    # Reading: waits.

    def __str__(self) -> str:
        return self.text

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)  # type: ignore[call-overload, no-any-return]

    def __float__(self) -> float:
        return float(self.value)  # type: ignore[arg-type]

    def __index__(self) -> int:
        value = self.value
        if not isinstance(value, int):
            raise TypeError(f"{type(value).__name__} can't be used as an index")
        return value

    def __len__(self) -> int:
        return len(self.value)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)  # type: ignore[call-overload, no-any-return]

    def __contains__(self, item: object) -> bool:
        return item in self.value  # type: ignore[operator]

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]  # type: ignore[index]

    def __eq__(self, other: object) -> bool:
        return bool(self.value == _plain(other))

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: Any) -> bool:
        return bool(self.value < _plain(other))

    def __le__(self, other: Any) -> bool:
        return bool(self.value <= _plain(other))

    def __gt__(self, other: Any) -> bool:
        return bool(self.value > _plain(other))

    def __ge__(self, other: Any) -> bool:
        return bool(self.value >= _plain(other))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # probes of copy, pickle and notebooks: never wait for those
            raise AttributeError(name)
        return getattr(self.value, name)


@overload
def _plain(other: Value[T]) -> T: ...
@overload
def _plain(other: T) -> T: ...
def _plain(other: Any) -> Any:
    return other.value if isinstance(other, Value) else other


def resolve(data: Any, fill: Callable[[str], str]) -> Any:
    """``data`` with every Value in its lists, tuples and dicts replaced by what it holds, and
    every text of its own by what ``fill`` makes of it; waits. What a Value holds stays as it is."""
    if isinstance(data, Value):
        return data.value
    if isinstance(data, str):
        return fill(data)
    if type(data) in (list, tuple):
        return type(data)(resolve(item, fill) for item in data)
    if type(data) is dict:
        return {key: resolve(item, fill) for key, item in data.items()}
    return data


def leaves(data: Any) -> Iterator[Any]:
    """The resolved content of the lists, tuples and dicts of ``data``."""
    if type(data) in (list, tuple):
        for item in data:
            yield from leaves(item)
    elif type(data) is dict:
        for item in data.values():
            yield from leaves(item)
    else:
        yield data


def add_usage(a: Usage, b: Usage) -> Usage:
    """The sum of two usages."""
    names = [field.name for field in fields(Usage)]
    return Usage(**{name: getattr(a, name) + getattr(b, name) for name in names})


def text_of(value: Any) -> str:
    """A value as text for a prompt: a string as it is, everything else as JSON."""
    if isinstance(value, str):
        return str.__str__(value)
    return to_json(value, fallback=str).decode()
