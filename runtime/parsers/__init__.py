"""Push parsers: fed pieces of any size, they hand out what is certain and hold back the rest.

However the input is cut, the outputs join to the same result, so streaming and non-streaming
callers use the same objects.
"""

from ramet.runtime.parsers.channels import ChannelParser
from ramet.runtime.parsers.chat import ChatParser, ChatReader
from ramet.runtime.parsers.custom_input import CustomInputReader
from ramet.runtime.parsers.deltas import (
    ChatDelta,
    ContentDelta,
    ReasoningDelta,
    ToolArgumentsDelta,
    ToolCallEnd,
    ToolCallStart,
    join_deltas,
)
from ramet.runtime.parsers.known_formats import TOOL_FORMATS, detect_tool_format
from ramet.runtime.parsers.output import OutputStream, StreamStep
from ramet.runtime.parsers.reasoning import (
    REASONING_FORMATS,
    ReasoningFormat,
    ReasoningParser,
    detect_reasoning_format,
)
from ramet.runtime.parsers.stop_strings import StopMatch, StopStringMatcher, StopStrings
from ramet.runtime.parsers.tool_calls import ToolCallParser
from ramet.runtime.parsers.tool_formats import TagSyntax, ToolFormat, read_tool_format
from ramet.runtime.parsers.utf8 import Utf8Assembler

__all__ = [
    "REASONING_FORMATS",
    "TOOL_FORMATS",
    "ChannelParser",
    "ChatDelta",
    "ChatParser",
    "ChatReader",
    "ContentDelta",
    "CustomInputReader",
    "OutputStream",
    "ReasoningDelta",
    "ReasoningFormat",
    "ReasoningParser",
    "StopMatch",
    "StopStringMatcher",
    "StopStrings",
    "StreamStep",
    "TagSyntax",
    "ToolArgumentsDelta",
    "ToolCallEnd",
    "ToolCallParser",
    "ToolCallStart",
    "ToolFormat",
    "Utf8Assembler",
    "detect_reasoning_format",
    "detect_tool_format",
    "join_deltas",
    "read_tool_format",
]
