"""A server's configuration is refused by name where it can't be."""

from __future__ import annotations

import pytest

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.server.config import ServerConfig


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", -1),
        ("port", "8000"),
        ("receive_timeout_s", 0),
        ("receive_timeout_s", float("nan")),
        ("receive_timeout_s", float("inf")),
        ("grace_period_s", -1.0),
        ("grace_period_s", None),
        ("max_body_bytes", 0),
        ("max_choices", 0),
        ("max_program_nodes", True),
        ("max_inputs", 1.5),
        ("max_tools", 0),
        ("max_stored_responses", -1),
        ("max_stored_response_bytes", -1),
    ],
)
def test_what_can_not_be_is_refused_by_name(name, value):
    with pytest.raises(InvalidParameterError, match=name) as caught:
        ServerConfig(**{name: value})
    assert caught.value.param == name


def test_limits_themselves_are_taken():
    config = ServerConfig(port=0, grace_period_s=0, max_stored_responses=0, max_choices=1)
    assert config.grace_period_s == 0
