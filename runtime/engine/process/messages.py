"""The messages between the two processes, pickled over one duplex pipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.events import Event
from ramet.runtime.api.request import GrammarScope, HintUpdate, Request
from ramet.runtime.engine.memory_plan import MemoryPlan
from ramet.runtime.engine.sampling_defaults import SamplingDefaults

Question = Literal["stats", "cache_view", "check", "clear_cache"]
"""Methods of the engine that may be asked for by name."""


@dataclass(frozen=True, slots=True)
class Submit:
    """To the engine: queue this request, which has been checked and may grow to ``max_len``."""

    request: Request
    max_len: int


@dataclass(frozen=True, slots=True)
class Abort:
    """To the engine: end this request."""

    request_id: str


@dataclass(frozen=True, slots=True)
class UpdateHint:
    """To the engine: an update of a program's hints."""

    update: HintUpdate


@dataclass(frozen=True, slots=True)
class SetTenantWeights:
    """To the engine: the tenants' shares from now on."""

    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ask:
    """To the engine: call this method, and answer under this number."""

    number: int
    question: Question


@dataclass(frozen=True, slots=True)
class Compile:
    """To the engine: compile this, and answer under this number."""

    number: int
    constraint: Constraint
    scope: GrammarScope


@dataclass(frozen=True, slots=True)
class Forget:
    """To the engine: the compilation of this number is no longer needed."""

    number: int


@dataclass(frozen=True, slots=True)
class Close:
    """To the engine: end."""


@dataclass(frozen=True, slots=True)
class Ready:
    """From the engine: it takes requests; its sizes."""

    vocab_size: int
    max_context_len: int
    memory_plan: MemoryPlan
    summary: str
    sampling_defaults: SamplingDefaults


@dataclass(frozen=True, slots=True)
class StartFailed:
    """From the engine: it could not be made."""

    error: Exception


@dataclass(frozen=True, slots=True)
class Events:
    """From the engine: one step's events, in order."""

    events: list[tuple[str, Event]]


@dataclass(frozen=True, slots=True)
class Answer:
    """From the engine: the result of a question, or its error."""

    number: int
    value: Any
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """From the engine: how long its running step has taken, and whether it loads or compiles."""

    step_s: float
    preparing: bool


Command = Submit | Abort | UpdateHint | SetTenantWeights | Ask | Compile | Forget | Close
Report = Ready | StartFailed | Events | Answer | Heartbeat
