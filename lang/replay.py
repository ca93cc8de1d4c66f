"""Replaying a trace: does the same program with the same seed give the same bytes?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ramet.lang.trace.diff import Difference, TraceDiff
from ramet.lang.trace.trace import Trace

if TYPE_CHECKING:
    from ramet.lang.backends.choose import BackendLike
    from ramet.lang.program import Program
    from ramet.lang.run.run import Run


@dataclass(frozen=True)
class Replay:
    """A replay's run, and where it differs: nowhere, if ``differences`` is empty."""

    run: Run[Any]
    diff: TraceDiff

    @property
    def differences(self) -> list[Difference]:
        """The nodes that gave something else."""
        return self.diff.differences

    @property
    def is_same(self) -> bool:
        """Whether every node gave the same bytes."""
        return not self.diff

    def __str__(self) -> str:
        return str(self.diff)


def replay(
    trace: Trace | str | Path,
    program: Program[..., Any],
    *,
    backend: BackendLike = None,
    arguments: Mapping[str, Any] | None = None,
) -> Replay:
    """Runs ``program`` again with a trace's seed and arguments, and compares every node's text.

    Args:
        trace: of an earlier run, or its file (``.ramet.json``).
        program: the same program.
        backend: None: the default one.
        arguments: instead of the trace's, where those were no plain data.

    Raises:
        NodeFailedError: the replayed run failed.
    """
    if not isinstance(trace, Trace):
        trace = Trace.load(trace)
    settings: dict[str, Any] = {**trace.sampling, "seed": trace.seed}
    if trace.chat_template_kwargs:
        settings["chat_template_kwargs"] = trace.chat_template_kwargs
    if backend is not None:
        settings["backend"] = backend
    chosen = trace.arguments if arguments is None else arguments
    run = program.using(**settings).run(**chosen)
    return Replay(run, trace.diff(run.trace))
