"""Grammar checks: a constraint's fate before it is used."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from ramet.runtime.api.errors import EngineDeadError


def check(server, **fields):
    answer = server.http.post("/v1/grammar/check", json=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


def schema_format(schema):
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 3}},
            "required": ["a"],
        },
        {"type": "array", "items": {"enum": ["x", "y"]}, "minItems": 2},
        {"type": "string", "minLength": 4, "maxLength": 5},
        {"anyOf": [{"const": None}, {"type": "number"}]},
    ],
)
def test_a_sample_matches_the_schema(ok_server, schema):
    answer = check(ok_server, response_format=schema_format(schema))
    assert answer["supported"]
    assert answer["compile_seconds"] >= 0
    jsonschema.validate(json.loads(answer["sample"]), schema)


def test_a_sample_matches_the_regex(ok_server):
    pattern = r"[a-f]{2,4}-\d+"
    answer = check(ok_server, structured_outputs={"regex": pattern})
    assert re.fullmatch(pattern, answer["sample"])


def test_a_text_is_held_against_the_constraint(ok_server):
    fields = {"structured_outputs": {"regex": "ab+c"}}
    assert check(ok_server, **fields, text="abbc")["match"]["accepted"]
    wrong = check(ok_server, **fields, text="abxc")["match"]
    assert (wrong["accepted"], wrong["offset"]) == (False, 2)
    assert wrong["expected"]


@pytest.mark.parametrize(
    ("fields", "path", "keyword"),
    [
        ({"guided_regex": "(a)\\1"}, "offset", None),
        (
            {"response_format": schema_format({"properties": {"a": {"type": "nothing"}}})},
            "/properties/a",
            "type",
        ),
    ],
)
def test_what_is_not_supported_is_named(ok_server, fields, path, keyword):
    answer = check(ok_server, **fields)
    assert not answer["supported"]
    assert path in answer["path"]
    assert keyword in (None, answer["keyword"])
    assert answer["reason"]


def test_an_empty_language_is_reported(ok_server):
    schema = {"type": "integer", "minimum": 3, "maximum": 2}
    answer = check(ok_server, response_format=schema_format(schema))
    assert answer["supported"]
    assert answer["empty"]


def test_a_check_says_what_it_cost(ok_server):
    small, large = (
        check(ok_server, structured_outputs={"regex": f"(ab){{{count}}}x"}) for count in (2, 200)
    )
    assert 0 < small["states"] < large["states"]
    assert small["contexts"] >= 1
    assert small["compile_seconds"] >= 0


def test_a_text_to_check_has_a_bound(ok_server):
    body = {"guided_regex": "a*", "text": "a" * 100_001}
    answer = ok_server.http.post("/v1/grammar/check", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "text"


def test_a_check_needs_a_constraint(ok_server):
    assert ok_server.http.post("/v1/grammar/check", json={}).status_code == 400


def test_a_text_that_takes_too_long_is_given_up_by_name(ok_server, monkeypatch):
    monkeypatch.setattr("ramet.runtime.server.ramet.grammar_routes._MAX_MATCH_S", 0.0)
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "integer"}}
    answer = check(ok_server, response_format=schema_format(schema), text="[1,2,3]")
    assert answer["too_complex"]
    assert "bytes" in answer["reason"]
    assert "match" not in answer


def test_the_first_check_waits_for_compiled_code_and_no_other(serve, monkeypatch):
    """Compiled where the check runs, it would hold up the server, and count as the grammar's."""
    server = serve(["ok"])
    asked = []

    def load_constraints(is_wanted):
        asked.append(is_wanted())
        if len(asked) == 1:
            raise EngineDeadError("the engine has been closed")

    monkeypatch.setattr("ramet.runtime.api.warm_up.load_constraints", load_constraints)
    body = {"response_format": {"type": "json_object"}}
    statuses = [server.http.post("/v1/grammar/check", json=body).status_code for _ in range(4)]
    assert statuses == [503, 200, 200, 200]
    assert asked == [True, True]


def test_overlapping_alternatives_are_named_on_request(ok_server):
    fields = {"structured_outputs": {"regex": "aa|a+|b"}}
    answer = check(ok_server, **fields, overlaps=True)
    assert answer["overlaps"] == [{"first": "aa", "second": "a+", "what": "text", "example": "aa"}]
    assert answer["not_compared"] == []
    assert "overlaps" not in check(ok_server, **fields)


def test_what_is_not_compared_for_overlaps_is_named(ok_server):
    answer = check(ok_server, response_format={"type": "json_object"}, overlaps=True)
    assert answer["overlaps"] == []
    assert "json_object" in answer["not_compared"][0]["reason"]
