"""Shows a run in the terminal: its calls live, then their cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ramet.lang import Run, Trace
from ramet.lang.graph.nodes import Join, Node
from ramet.lang.run.events import NodeFailed, NodeFinished, NodeStarted, RunEvent, TextPiece

MAX_TEXT_LEN = 160
_MARKS = {"waits": "·", "runs": "▸", "done": "✓", "failed": "✗"}
_STYLES = {"waits": "dim", "runs": "yellow", "done": "green", "failed": "red"}


@dataclass
class _Row:
    node: Node
    state: str = "runs"
    pieces: list[str] = field(default_factory=list)


class LiveView:
    """A run's calls as rows that grow with its events."""

    def __init__(self) -> None:
        self._rows: dict[str, _Row] = {}

    def feed(self, event: RunEvent) -> None:
        """Adds one event."""
        if isinstance(event, NodeStarted):
            self._rows[event.node.id] = _Row(event.node)
        elif isinstance(event, TextPiece):
            self._rows[event.node.id].pieces.append(event.text)
        elif isinstance(event, NodeFinished | NodeFailed):
            row = self._rows.get(event.node.id)
            if row is not None:
                row.state = "failed" if isinstance(event, NodeFailed) else "done"
                row.pieces = [
                    str(event.error) if isinstance(event, NodeFailed) else event.result.text
                ]

    def __rich__(self) -> RenderableType:
        table = Table.grid(padding=(0, 1))
        table.add_column(width=1)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(style="bold", no_wrap=True)
        table.add_column(overflow="fold")
        for row in self._rows.values():
            if isinstance(row.node, Join):
                continue
            text = " ".join("".join(row.pieces).split())
            if len(text) > MAX_TEXT_LEN:
                text = text[: MAX_TEXT_LEN // 2] + " … " + text[-MAX_TEXT_LEN // 2 :]
            branch = row.node.id.rpartition(".")[0]
            table.add_row(
                Text(_MARKS[row.state], style=_STYLES[row.state]),
                Text(f"branch {branch}" if branch else "main"),
                Text(row.node.label),
                Text(text),
            )
        return table


def watch(run: Run[Any], console: Console) -> None:
    """Shows a run's calls live until it ends; raises the run's error.

    A KeyboardInterrupt aborts the run's calls.
    """
    view = LiveView()
    try:
        with Live(view, console=console, refresh_per_second=12) as live:
            for event in run.events:
                view.feed(event)
            live.refresh()
    except KeyboardInterrupt:
        run.cancel()
        raise
    run.wait()


def summary(trace: Trace) -> Table:
    """The cost of a run as a table of two columns."""
    usage = trace.usage
    computed = usage.prompt_tokens - usage.cached_tokens
    reused = usage.cached_tokens / usage.prompt_tokens if usage.prompt_tokens else 0.0
    forced = usage.forced_tokens / usage.completion_tokens if usage.completion_tokens else 0.0
    table = Table(title="What it took", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    tools = sum(record.kind == "tool" for record in trace.calls)
    for name, value in (
        ("calls of the model", f"{trace.num_calls}"),
        ("calls of tools", f"{tools}"),
        ("prompt tokens", f"{usage.prompt_tokens}"),
        ("  reused from the prefix cache", f"{usage.cached_tokens} ({reused:.0%})"),
        ("  computed", f"{computed}"),
        ("output tokens", f"{usage.completion_tokens}"),
        ("  forced by a grammar", f"{usage.forced_tokens} ({forced:.0%})"),
        ("output tokens a second", f"{usage.completion_tokens / max(trace.wall_s, 1e-9):.1f}"),
        ("wall time", f"{trace.wall_s:.2f} s"),
    ):
        table.add_row(name, value)
    return table


def report(run: Run[Any]) -> RenderableType:
    """A finished run's cost and its request graph."""
    return Group(summary(run.trace), Text(""), Text(run.graph.tree()))
