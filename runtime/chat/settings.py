"""What an operator may set of how chats are planned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class ChatSettings(Protocol):
    """The settings that a ``ChatPlanner`` reads.

    Attributes:
        max_tools: most tools of one call.
        tool_format, reasoning_format: a format's name, or a file of a tool format; None: detected
            from the chat template.
    """

    @property
    def max_tools(self) -> int: ...

    @property
    def tool_format(self) -> str | None: ...

    @property
    def reasoning_format(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class DetectedFormats:
    """Settings under which both formats are detected from the chat template."""

    max_tools: int = 512
    tool_format: str | None = None
    reasoning_format: str | None = None
