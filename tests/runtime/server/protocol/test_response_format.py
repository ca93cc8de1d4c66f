"""A constraint that can't be honoured is an error that names the body's field, in every API."""

from __future__ import annotations

import json

import pytest

from ramet.grammars.constraints import FreeText, JsonSchema, Series, StructuralTag, Tag
from ramet.grammars.constraints.serialize import constraint_to_json
from ramet.lang import State, connect, program

BAD = {"type": "object", "properties": {"a b": {"items": {"type": "strnig"}}}}
PLACE = '.properties["a b"].items.type'
USER = [{"role": "user", "content": "hi"}]
THINKS = "{% if enable_thinking %}<think></think>{% endif %}{{ messages[0].content }}"

BODIES = {
    "response_format": (
        "/v1/chat/completions",
        {"messages": USER, "response_format": {
            "type": "json_schema", "json_schema": {"name": "x", "schema": BAD}}},
        "response_format.json_schema.schema" + PLACE,
    ),
    "structured_outputs": (
        "/v1/completions",
        {"prompt": "x", "structured_outputs": {"json": BAD}},
        "structured_outputs.json" + PLACE,
    ),
    "json text": (
        "/v1/completions",
        {"prompt": "x", "structured_outputs": {"json": json.dumps(BAD)}},
        "structured_outputs.json" + PLACE,
    ),
    "guided": (
        "/v1/chat/completions",
        {"messages": USER, "guided_json": BAD},
        "guided_json" + PLACE,
    ),
    "regex": (
        "/v1/chat/completions",
        {"messages": USER, "structured_outputs": {"regex": "a(["}},
        "structured_outputs.regex",
    ),
    "grammar": ("/v1/completions", {"prompt": "x", "guided_grammar": "root ::= x"},
                "guided_grammar"),
    "structures": (
        "/v1/chat/completions",
        {"messages": USER, "response_format": {
            "type": "structural_tag", "triggers": ["<a"],
            "structures": [{"begin": "<a>", "schema": BAD, "end": "</a>"}]}},
        "response_format.structures[0].schema" + PLACE,
    ),
    "own tag": (
        "/v1/completions",
        {"prompt": "x", "structured_outputs": {"structural_tag": constraint_to_json(
            StructuralTag(Series((FreeText(("<a>",)), Tag("<a>", JsonSchema(BAD), "</a>")))))}},
        "structured_outputs.structural_tag.root.parts[1].content.schema" + PLACE,
    ),
    "format": (
        "/v1/completions",
        {"prompt": "x", "structured_outputs": {"structural_tag": json.dumps({
            "type": "structural_tag", "format": {"type": "sequence", "elements": [
                {"type": "const_string", "value": "x"},
                {"type": "tag", "begin": "<a>", "end": "</a>",
                 "content": {"type": "json_schema", "json_schema": BAD}}]}})}},
        "structured_outputs.structural_tag.format.elements[1].content.json_schema" + PLACE,
    ),
    "flag": (
        "/v1/completions",
        {"prompt": "x", "response_format": {"type": "structural_tag", "format": {
            "type": "json_schema", "json_schema": {}, "any_order": "no"}}},
        "response_format.format.any_order",
    ),
    "text.format": (
        "/v1/responses",
        {"input": "hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": BAD}}},
        "text.format.schema" + PLACE,
    ),
    "output_config": (
        "/v1/messages",
        {"messages": USER, "max_tokens": 9,
         "output_config": {"format": {"type": "json_schema", "schema": BAD}}},
        "output_config.format.schema" + PLACE,
    ),
    "chat tools": (
        "/v1/chat/completions",
        {"messages": USER, "tools": [
            {"type": "function", "function": {"name": "ok"}},
            {"type": "function", "function": {"name": "f", "parameters": BAD}}]},
        "tools[1].function.parameters" + PLACE,
    ),
    "responses tools": (
        "/v1/responses",
        {"input": "hi", "tools": [{"type": "function", "name": "f", "parameters": BAD}]},
        "tools[0].parameters" + PLACE,
    ),
    "messages tools": (
        "/v1/messages",
        {"messages": USER, "max_tokens": 9, "tools": [{"name": "f", "input_schema": BAD}]},
        "tools[0].input_schema" + PLACE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_the_field_at_fault_is_named(ok_server, kind, stream):
    path, body, param = BODIES[kind]
    answer = ok_server.http.post(path, json={**body, "stream": stream})
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert param in error["message"]
    if path != "/v1/messages":  # whose errors have no field for it
        assert error["param"] == param
        assert error["code"] == "invalid_grammar"


def test_an_answer_behind_bounded_reasoning_is_refused_before_it_reasons(serve):
    server = serve(["never"], reasoning_format="think")
    before = server.engine.stats().num_steps
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": BAD}}
    for stream in (False, True):
        answer = server.chat(thinking_token_budget=5, response_format=form, stream=stream)
        assert answer.status_code == 400
        param = answer.json()["error"]["param"]
        assert param == "response_format.json_schema.schema" + PLACE
    assert server.engine.stats().num_steps == before


CALL = {
    "type": "tag",
    "begin": "<call>",
    "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
    "end": "</call>",
}

FORMATS = [
    ({"type": "const_string", "value": "abc"}, "abc", "abd"),
    ({"type": "regex", "pattern": "[0-9]+"}, "42", "x"),
    ({"type": "grammar", "grammar": 'root ::= "a" | "b"'}, "b", "c"),
    ({"type": "any_text", "excludes": ["no"]}, "yes", "a no"),
    ({"type": "or", "elements": [CALL, {"type": "const_string", "value": "x"}]}, "x", "y"),
    (CALL, "<call>7</call>", "<call>x</call>"),
    ({**CALL, "end": ["</call>", "<end>"]}, "<call>7<end>", "<call>7"),
    ({**CALL, "content": {"type": "any_text"}, "end": [";", "."]}, "<call>hm.", "<call>a.b;"),
    ({"type": "triggered_tags", "triggers": ["<call"], "tags": [CALL]},
     "a<call>1</call>b<call>2</call>", "a<call>x"),
    ({"type": "triggered_tags", "triggers": ["<call"], "tags": [CALL], "at_least_one": True},
     "a<call>1</call>", "a"),
    ({"type": "triggered_tags", "triggers": ["<call"], "tags": [CALL], "stop_after_first": True},
     "a<call>1</call>", "a<call>1</call>b"),
    ({"type": "tags_with_separator", "tags": [CALL], "separator": ","},
     "<call>1</call>,<call>2</call>", "<call>1</call>,"),
    ({"type": "tags_with_separator", "tags": [CALL], "separator": ",", "stop_after_first": True},
     "<call>1</call>", "<call>1</call>,<call>2</call>"),
    ({"type": "optional", "content": CALL}, "", "<call>1</call><call>1</call>"),
    ({"type": "plus", "content": CALL}, "<call>1</call><call>1</call>", ""),
    ({"type": "star", "content": CALL}, "", "x"),
    ({"type": "repeat", "content": CALL, "min": 2, "max": 2}, "<call>1</call><call>1</call>",
     "<call>1</call>"),
]  # fmt: skip


@pytest.mark.parametrize(("form", "good", "bad"), FORMATS)
def test_vllms_structural_tags_mean_the_same(ok_server, form, good, bad):
    tag = {"type": "structural_tag", "format": form}
    for text, accepted in ((good, True), (bad, False)):
        body = {"response_format": tag, "text": text}
        answer = ok_server.http.post("/v1/grammar/check", json=body).json()
        assert answer["supported"], answer
        assert answer["match"]["accepted"] is accepted


@pytest.mark.parametrize("num_tokens", [1, 4])
def test_free_text_ends_after_its_tokens(serve, num_tokens):
    server = serve(["hm " * 30])
    thought = {"type": "any_text", "max_tokens": num_tokens}
    tag = {"type": "tag", "begin": "<n>", "content": thought, "end": "</n>"}
    answer = server.complete(
        prompt="x", max_tokens=60,
        structured_outputs={"structural_tag": {"type": "structural_tag", "format": tag}},
    ).json()  # fmt: skip
    begin, end = len("<n>"), len("</n>")
    text = answer["choices"][0]["text"]
    assert text.startswith("<n>")
    assert text.endswith("</n>")
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert 0 < len(server.engine.tokenizer.encode(text[begin:-end])) <= num_tokens


@pytest.mark.parametrize(
    ("tag", "param"),
    [
        ("{", "structural_tag"),
        ([], "structural_tag"),
        ({"type": "tag"}, "structural_tag.type"),
        ({"kind": "regex", "pattern": "a"}, "structural_tag.kind"),
        ({"kind": "structural_tag", "rot": {}}, "structural_tag.rot"),
        ({"format": {"type": "token", "token": 3}}, "structural_tag.format.type"),
        ({"format": {"type": "any_text", "max_chars": 3}}, "structural_tag.format.max_chars"),
        ({"format": {**CALL, "colour": 1}}, "structural_tag.format.colour"),
        ({"format": {"type": "or", "elements": [{"type": "regex"}]}},
         "structural_tag.format.elements[0].pattern"),
        ({"structures": [{"begin": "a", "end": "b"}], "triggers": ["a"]},
         "structural_tag.structures[0].schema"),
    ],
)  # fmt: skip
def test_a_wrong_structural_tag_is_named(ok_server, tag, param):
    answer = ok_server.complete(prompt="x", structured_outputs={"structural_tag": tag})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == f"structured_outputs.{param}"


def test_a_program_sends_its_structural_tag(serve):
    server = serve(["hm "])
    tag = StructuralTag(Tag("<n>", JsonSchema({"type": "integer", "maximum": 9}), "</n>"))

    @program
    def asks(s: State) -> None:
        s += "x"
        s.gen("n", constraint=tag, max_tokens=30)

    run = asks.run(backend=connect(server.url))
    assert run["n"].startswith("<n>")
    assert run["n"].endswith("</n>")
    json.loads(run["n"][3:-4])
