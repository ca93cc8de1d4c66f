"""Logging of ``ramet serve`` and its engine process: to stderr, as text or as JSON.

Prompts, answers and API keys are never logged. An exception's message may quote a request, so
inside a request it is left out unless the level is debug.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

LEVELS = ("error", "warning", "info", "debug")
FORMATS = ("text", "json")

request_fields: ContextVar[dict[str, str] | None] = ContextVar("request_fields", default=None)
"""Fields of every record that is logged in the context of a request: its id and tenant."""

_ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def configure_logging(level: str, format: str) -> None:
    """Writes records of this process to stderr: Ramet's from ``level`` on, others from warning.

    Args:
        level: one of ``LEVELS``.
        format: one of ``FORMATS``; with ``json``, each record is an object on a line of its own,
            uncaught exceptions included.
    """
    with_messages = level == "debug"
    handler = logging.StreamHandler()
    if format == "json":
        handler.setFormatter(JsonFormatter(with_messages=with_messages))
        sys.excepthook = _log_uncaught
        threading.excepthook = _log_uncaught_in_thread
    else:
        handler.setFormatter(TextFormatter(with_messages=with_messages))
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("ramet").setLevel(level.upper())


class TextFormatter(logging.Formatter):
    """A line of text a record; one that has ``fields`` is written as a JSON object alone."""

    def __init__(self, *, with_messages: bool) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")
        self._with_messages = with_messages

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        if fields is not None:
            return json.dumps({"event": record.getMessage(), **fields})
        context = request_fields.get()
        line = super().format(record)
        return line if not context else f"{line} {json.dumps(context)}"

    def formatException(self, ei: Any) -> str:  # logging's name
        return _describe(ei, self._with_messages) or super().formatException(ei)


class JsonFormatter(logging.Formatter):
    """A JSON object a record: time, level, logger, process, message, and fields of the request."""

    def __init__(self, *, with_messages: bool) -> None:
        super().__init__()
        self._with_messages = with_messages

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        fields = {
            "time": time.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.processName,
            "message": record.getMessage(),
            **(request_fields.get() or {}),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)

    def formatException(self, ei: Any) -> str:  # logging's name
        return _describe(ei, self._with_messages) or super().formatException(ei)


def _describe(exception: _ExceptionInfo, with_messages: bool) -> str | None:
    """An exception's type and stack, where its message must be left out; otherwise None."""
    if with_messages or not request_fields.get():
        return None
    kind, value, stack = exception
    lines = ["".join(traceback.format_tb(stack)), kind.__name__]
    cause = value.__cause__ or value.__context__
    if cause is not None:
        lines.append(f" from {type(cause).__name__}")
    return "".join(lines)


def _log_uncaught(
    kind: type[BaseException], value: BaseException, stack: TracebackType | None
) -> None:
    logging.getLogger("ramet").critical("uncaught exception", exc_info=(kind, value, stack))


def _log_uncaught_in_thread(uncaught: threading.ExceptHookArgs) -> None:
    name = "" if uncaught.thread is None else uncaught.thread.name
    value = uncaught.exc_value or uncaught.exc_type()
    logging.getLogger("ramet").critical(
        "uncaught exception in thread %s",
        name,
        exc_info=(uncaught.exc_type, value, uncaught.exc_traceback),
    )
