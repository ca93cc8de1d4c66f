"""Log lines: text or JSON objects, with the request's id, without what a request holds."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from ramet.runtime.api.log import JsonFormatter, TextFormatter, request_fields

LOGGER = logging.getLogger("ramet.test")


def record(message="it happened", *args, error=None, **extra):
    info = (type(error), error, error.__traceback__) if error else None
    return LOGGER.makeRecord(
        LOGGER.name, logging.WARNING, __file__, 1, message, args, info, extra=extra or None
    )


@pytest.fixture
def in_request():
    token = request_fields.set({"request_id": "req-1", "tenant": "a"})
    yield
    request_fields.reset(token)


def failure() -> ValueError:
    try:
        try:
            raise KeyError("a prompt")
        except KeyError as error:
            raise ValueError("an answer") from error
    except ValueError as error:
        return error


def test_a_record_is_one_object_with_the_request_s_fields(in_request):
    line = JsonFormatter(with_messages=False).format(record("two\nlines of %s", "text"))
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["message"] == "two\nlines of text"
    assert (fields["level"], fields["logger"]) == ("warning", "ramet.test")
    assert (fields["request_id"], fields["tenant"]) == ("req-1", "a")
    assert fields["time"].endswith("+00:00")


def test_text_names_the_request_too(in_request):
    line = TextFormatter(with_messages=False).format(record())
    assert 'WARNING ramet.test: it happened {"request_id": "req-1", "tenant": "a"}' in line


@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_what_an_exception_quotes_is_left_out_inside_a_request(kind, in_request):
    line = kind(with_messages=False).format(record(error=failure()))
    assert "ValueError" in line
    assert "KeyError" in line
    assert "test_log.py" in line
    for quoted in ("a prompt", "an answer"):
        assert f"Error: {quoted}" not in line
        assert f"'{quoted}'" not in line
    assert "ValueError: an answer" in kind(with_messages=True).format(record(error=failure()))


@pytest.mark.parametrize("kind", [JsonFormatter, TextFormatter])
def test_outside_of_requests_exceptions_are_whole(kind):
    assert "ValueError: an answer" in kind(with_messages=False).format(record(error=failure()))


def test_fields_of_an_access_line_are_an_object_in_both_formats():
    line = record("http_request", fields={"status": 200})
    assert json.loads(TextFormatter(with_messages=False).format(line)) == {
        "event": "http_request",
        "status": 200,
    }
    as_json = json.loads(JsonFormatter(with_messages=False).format(line))
    assert (as_json["message"], as_json["status"]) == ("http_request", 200)


SCRIPT = """
import logging, threading, warnings
from ramet.runtime.api.log import configure_logging
configure_logging({level!r}, {format!r})
logging.getLogger("ramet.a").debug("d"); logging.getLogger("ramet.a").info("i")
logging.getLogger("other").info("oi"); logging.getLogger("other").warning("ow")
warnings.warn("w")
thread = threading.Thread(target=lambda: 1 / 0)
thread.start(); thread.join()
1 / 0
"""


@pytest.mark.parametrize(
    ("level", "expected"),
    [("error", ["ow"]), ("info", ["i", "ow"]), ("debug", ["d", "i", "ow"])],
)
def test_levels_are_for_ramet_and_every_line_is_json(level, expected):
    script = SCRIPT.format(level=level, format="json")
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    records = [json.loads(line) for line in ended.stderr.splitlines()]
    logged = [each["message"] for each in records]
    assert logged[: len(expected)] == expected
    assert "UserWarning: w" in logged[len(expected)]
    assert [each.get("exception", "")[-35:] for each in records[-2:]] == [
        "ZeroDivisionError: division by zero"
    ] * 2
