"""``/v1/hint_updates`` releases the prefixes that are kept for a program, and no others."""

from __future__ import annotations

import pytest


def keep(server, program: str, **fields):
    """A call that says more is to come; its prefix stays."""
    hint = {"program_id": program, "node_id": "0", "tokens_to_come": 50, "program": "test"}
    answer = server.complete(prompt=f"{program} " * 20, max_tokens=4, ramet=hint, **fields)
    assert answer.status_code == 200, answer.text


def kept(server) -> int:
    """Pages that can't be evicted."""
    server.engine.clear_cache()
    return server.engine.stats().num_cached_pages


def update_hints(server, **update):
    answer = server.http.post("/v1/hint_updates", json=update)
    assert answer.status_code == 200, answer.text


def test_what_is_kept_for_a_program_goes_when_it_says_so(serve):
    server = serve(["ok"])
    keep(server, "one")
    both = kept(server)
    assert both > 0
    update_hints(server, program_id="another", has_ended=True)
    update_hints(server, program_id="one", unneeded=["7"])
    update_hints(server, program_id="one", cache_salt="salt", has_ended=True)
    assert kept(server) == both
    update_hints(server, program_id="one", unneeded=["0"])
    assert kept(server) == 0
    keep(server, "two", cache_salt="salt")
    update_hints(server, program_id="two", cache_salt="salt", has_ended=True)
    assert kept(server) == 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "program_id"),
        ({"program_id": 7}, "program_id"),
        ({"program_id": "p", "unneeded": "0"}, "unneeded"),
        ({"program_id": "p", "has_ended": "yes"}, "has_ended"),
        ({"program_id": "p", "other": 1}, "other"),
    ],
)
def test_wrong_fields_are_refused_by_name(serve, body, param):
    answer = serve(["ok"]).http.post("/v1/hint_updates", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
