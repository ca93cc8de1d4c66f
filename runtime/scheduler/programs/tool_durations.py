"""How long programs wait for their tools."""

from __future__ import annotations

from collections import defaultdict, deque

_FIRST_BUDGET_S = 5.0
_LEAST_BUDGET_S = 0.25
_NUM_DURATIONS = 32
_MAX_TOOLS = 4096


class ToolDurations:
    """Recent durations of each tool. The tool ``""`` is a program's own code."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, deque[float]] = defaultdict(
            lambda: deque(maxlen=_NUM_DURATIONS)
        )

    def observe(self, tool: str, seconds: float) -> None:
        """Records how long a program has waited for a tool."""
        if len(self._seconds) >= _MAX_TOOLS and tool not in self._seconds:
            del self._seconds[next(iter(self._seconds))]
        self._seconds[tool].append(seconds)

    def has_observed(self, tool: str) -> bool:
        """Whether a duration of the tool is known."""
        return tool in self._seconds

    def budget_s(self, tool: str) -> float:
        """1.5 times the 90th percentile of the tool's recent durations."""
        seconds = self._seconds.get(tool)
        if not seconds:
            return _FIRST_BUDGET_S
        return max(1.5 * sorted(seconds)[int(0.9 * (len(seconds) - 1))], _LEAST_BUDGET_S)
