"""How long programs wait for their tools."""

from __future__ import annotations

from collections import defaultdict, deque

_FIRST_BUDGET_S = 5.0
_LEAST_BUDGET_S = 0.25
_NUM_DURATIONS = 32
_MAX_TOOLS = 4096


class ToolDurations:
    """How long each tool took lately. The tool ``""`` is a program's own code."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=_NUM_DURATIONS)
        )

    def note(self, tool: str, seconds: float) -> None:
        """A program went on so long after it had begun to wait for the tool."""
        if len(self._seconds) >= _MAX_TOOLS and tool not in self._seconds:
            del self._seconds[next(iter(self._seconds))]
        self._seconds[tool].append(seconds)

    def knows(self, tool: str) -> bool:
        """Whether the tool has been waited for."""
        return tool in self._seconds

    def budget_s(self, tool: str) -> float:
        """One and a half times what nine in ten of the tool's last runs stayed within."""
        seconds = self._seconds.get(tool)
        if not seconds:
            return _FIRST_BUDGET_S
        return max(1.5 * sorted(seconds)[int(0.9 * (len(seconds) - 1))], _LEAST_BUDGET_S)
