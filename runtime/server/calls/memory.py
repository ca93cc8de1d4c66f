"""The parts of the server's memory that its HTTP side counts."""

from __future__ import annotations

from collections.abc import Mapping

from ramet.runtime.api.memory import MemoryPart, PartUsage
from ramet.runtime.engine.memory_plan import MemoryPlan
from ramet.runtime.engine.requests.unread_answers import UnreadAnswers


class ServerMemory:
    """Counts bodies, unread answers and stored responses against the plan's parts."""

    def __init__(self, plan: MemoryPlan) -> None:
        self.plan = plan
        self.bodies = MemoryPart("bodies", plan.bodies)
        self.responses = MemoryPart("responses", plan.responses)
        self._answers = MemoryPart("answers", plan.answers)
        self.answers = UnreadAnswers(self._answers)

    def usage(self) -> Mapping[str, PartUsage]:
        """The counters by part."""
        return {part.name: part.usage() for part in (self.bodies, self._answers, self.responses)}
