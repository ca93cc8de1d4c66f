"""Push parsers: fed pieces of any size, they hand out what is certain and hold back the rest.

However the input is cut, the outputs join to the same result, so streaming and non-streaming
callers use the same objects.
"""

from ramet.runtime.streams.output import OutputStream, StreamStep
from ramet.runtime.streams.stop_strings import StopMatch, StopStringMatcher, StopStrings
from ramet.runtime.streams.utf8 import Utf8Assembler

__all__ = [
    "OutputStream",
    "StopMatch",
    "StopStringMatcher",
    "StopStrings",
    "StreamStep",
    "Utf8Assembler",
]
