"""The records of a run's calls: results and times."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from ramet.lang.types.values import add_usage
from ramet.runtime.api.events import Timings, Usage


@dataclass(slots=True)
class CallRecord:
    """When a node did what, in seconds since its run began; None: never.

    ``timings`` are the engine's own, in seconds since the call was sent; ``request`` has the
    sampling parameters that differ from their defaults, and ``error_type`` the class of the error.
    """

    node_id: str
    name: str
    kind: str
    added_s: float
    sent_s: float | None = None
    first_text_s: float | None = None
    finished_s: float | None = None
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    finish_reason: str | None = None
    error: str | None = None
    error_type: str | None = None
    is_chat: bool = False
    request: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunRecord:
    """The record of a run.

    Attributes:
        program: the program's name.
        program_id: the run's own.
        seed: what the run's calls drew their seeds from.
        began_at: seconds since the epoch.
        wall_s: seconds from the run's begin to its last call's end.
        calls: a record a node, in the order in which the program made them.
        texts: what finished nodes gave, by node id.
        arguments: the program's arguments, by name, where they are known.
        sampling: the run's sampling defaults.
        backend: the name of what answered the calls.
        chat_template_kwargs: variables of the chat template.
        writes_tool_calls: whether agent loops used the model's own format of calls.
    """

    program: str
    program_id: str
    seed: int
    began_at: float
    wall_s: float
    calls: list[CallRecord]
    texts: dict[str, str]
    arguments: dict[str, Any] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    backend: str = ""
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    writes_tool_calls: bool = False

    @property
    def usage(self) -> Usage:
        """Tokens of all calls together."""
        return reduce(add_usage, (record.usage for record in self.calls), Usage())

    @property
    def num_calls(self) -> int:
        """Calls that the model answered."""
        return sum(record.kind in ("gen", "select") for record in self.calls)


def lane_of(node_id: str) -> str:
    """The branch of a node, as lanes name it."""
    return node_id.rpartition(".")[0] or "main"
