"""Metering log: what each request used, one JSON object a line, without any text."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path

from ramet.runtime.api.errors import ConfigurationError
from ramet.runtime.api.events import Failed, Finished
from ramet.trusted_files import append_trusted

logger = logging.getLogger(__name__)


class MeteringLog:
    """Appends a line for each request that has ended, with the counts of the metrics.

    A line is written before the request's answer ends. One that can't be written is counted and
    logged; the request isn't affected.

    Args:
        path: the file; it is made if it isn't there, for its owner alone.

    Attributes:
        num_lost: lines that could not be written.

    Raises:
        ConfigurationError: the file can't be opened for appending.
    """

    def __init__(self, path: Path, model_name: str) -> None:
        self._model_name = model_name
        self.num_lost = 0
        self._is_torn = False  # the last write ended inside a line
        try:
            self._file = append_trusted(path)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigurationError(f"metering_log: can't write {path}: {reason}") from None

    def record_end(self, tenant: str, call_id: str, event: Finished | Failed) -> None:
        """Appends a request's line."""
        usage = event.usage
        line = {
            "time": time.time(),
            "tenant": tenant,
            "model": self._model_name,
            "call": call_id,
            "end": event.reason if isinstance(event, Finished) else event.error.code,
            "computed_prompt_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cached_prompt_tokens": usage.cached_tokens,
            "generated_tokens": usage.completion_tokens,
        }
        data = b"\n" * self._is_torn + json.dumps(line).encode() + b"\n"
        try:
            num_written = os.write(self._file.fileno(), data)  # unbuffered: whole or lost
        except OSError as error:
            self._lose(str(error))
            return
        self._is_torn = num_written < len(data)
        if self._is_torn:
            self._lose("it was written in part")

    def _lose(self, reason: str) -> None:
        self.num_lost += 1
        logger.error("a line of the metering log is lost: %s", reason)

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
