"""Replaying a trace: does the same program with the same seed give the same bytes?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ramet.lang.trace.trace import Trace

if TYPE_CHECKING:
    from ramet.lang.backends.choose import BackendLike
    from ramet.lang.program import Program
    from ramet.lang.run.run import Run


@dataclass(frozen=True)
class Difference:
    """A node whose text is not what the trace has; None where one of them has no such node."""

    node_id: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Replay:
    """A replay's run, and where it differs: nowhere, if ``differences`` is empty."""

    run: Run[Any]
    differences: list[Difference]

    @property
    def is_same(self) -> bool:
        """Whether every node gave the same bytes."""
        return not self.differences


def replay(
    trace: Trace,
    program: Program[..., Any],
    *,
    backend: BackendLike = None,
    arguments: Mapping[str, Any] | None = None,
) -> Replay:
    """Runs ``program`` again with a trace's seed and arguments, and compares every node's text.

    Args:
        trace: of an earlier run.
        program: the same program.
        backend: None: the default one.
        arguments: instead of the trace's, where those were no plain data.

    Raises:
        NodeFailedError: the replayed run failed.
    """
    settings: dict[str, Any] = {**trace.sampling, "seed": trace.seed}
    if backend is not None:
        settings["backend"] = backend
    chosen = trace.arguments if arguments is None else arguments
    run = program.using(**settings).run(**chosen)
    after = run.trace.texts
    differences = [
        Difference(node_id, trace.texts.get(node_id), after.get(node_id))
        for node_id in dict.fromkeys((*trace.texts, *after))
        if trace.texts.get(node_id) != after.get(node_id)
    ]
    return Replay(run, differences)
