"""Every field is honoured or refused by name; a bad request hurts no other."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("fields", "param", "code", "says"),
    [
        ({"max_token": 3}, "max_token", "unknown_parameter", "max_tokens"),
        ({"temprature": 3}, "temprature", "unknown_parameter", "temperature"),
        ({"zzz": 1}, "zzz", "unknown_parameter", "zzz"),
        ({"best_of": 3}, "best_of", "unsupported_parameter", "best_of"),
        ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter", "audio"),
        ({"temperature": "hot"}, "temperature", "invalid_parameter", "number"),
        ({"temperature": -1}, "temperature", "invalid_parameter", "at least 0"),
        ({"top_p": 0}, "top_p", "invalid_parameter", "top_p"),
        ({"max_tokens": True}, "max_tokens", "invalid_parameter", "integer"),
        ({"max_tokens": 1.5}, "max_tokens", "invalid_parameter", "integer"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens", None, "differ"),
        ({"min_tokens": 5, "max_tokens": 2}, "min_tokens", "invalid_parameter", "above"),
        ({"n": 0}, "n", "invalid_parameter", "between 1"),
        ({"n": 10**6}, "n", "invalid_parameter", "between 1"),
        ({"top_logprobs": 2}, "top_logprobs", None, "logprobs"),
        ({"logprobs": True, "top_logprobs": 99}, None, "invalid_parameter", "at most"),
        ({"stop": [""]}, "stop", "invalid_parameter", "empty"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "invalid_parameter", "token ids"),
        ({"response_format": {"type": "xml"}}, "response_format.type", None, "json_object"),
        ({"response_format": {"type": "json_schema"}}, None, None, "json_schema.schema"),
        ({"stream_options": {"usage": True}, "stream": True}, "stream_options.usage", None, ""),
        ({"guided_regex": "a", "guided_choice": ["a"]}, None, "invalid_grammar", "exactly one"),
        ({"messages": []}, "messages", None, "at least one"),
        (
            {"messages": [{"role": "user"}, {"role": "robot"}]},
            "messages[1].role",
            None,
            "robot|'user'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].image_url",
            "unsupported_parameter",
            "image_url",
        ),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", None, "string"),
        ({"stream": True, "prompt_logprobs": 1}, "prompt_logprobs", None, "stream"),
        ({"model": "other"}, "model", "model_not_found", "other"),
        ({"ramet": {"program_ids": "x"}}, "ramet.program_ids", "unknown_parameter", "program_id"),
    ],
)
def test_a_wrong_field_is_named(ok_server, fields, param, code, says):
    answer = ok_server.chat(**fields)
    assert answer.status_code == (404 if param == "model" else 400)
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert code is None or error["code"] == code
    assert any(word in error["message"] for word in says.split("|"))
    assert ok_server.chat().json()["choices"][0]["message"]["content"] == "ok"


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "u", "metadata": {"a": "b"}, "store": True, "safety_identifier": "s"},
        {"service_tier": "auto", "modalities": ["text"], "functions": [], "audio": None},
        {"temperature": None, "tools": None, "stop": None, "logit_bias": None, "n": None},
        {"max_tokens": 2.0, "seed": -1},
    ],
)
def test_what_changes_nothing_is_accepted(ok_server, fields):
    assert ok_server.chat(**fields).status_code == 200


@pytest.mark.parametrize("prompt", ["", [""], [], [[]], ["a", ""]])
def test_an_empty_prompt_is_refused(ok_server, prompt):
    answer = ok_server.complete(prompt=prompt)
    assert answer.status_code == 400
    assert ok_server.complete(prompt="x").json()["choices"][0]["text"] == "ok"


@pytest.mark.parametrize("prompt", [3, {"a": 1}, [1, "a"], [1.5], [[1, "a"]], [True], None])
def test_a_prompt_of_another_shape_is_refused(ok_server, prompt):
    answer = ok_server.complete(prompt=prompt)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("prompt")


def test_token_ids_outside_the_vocabulary_are_refused(ok_server):
    for ids in ([10**6], [-1], [10**30]):
        assert ok_server.complete(prompt=ids).json()["error"]["param"] == "prompt"


@pytest.mark.parametrize("raw", [b"{", b"[]", b'"x"', b"\xff\xfe", b"", b"[" * 100_000, b"nul"])
def test_a_body_that_is_no_json_object_is_refused(ok_server, raw):
    headers = {"content-type": "application/json"}
    answer = ok_server.http.post("/v1/completions", content=raw, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert ok_server.chat().status_code == 200


def test_only_json_bodies_are_read(ok_server):
    answer = ok_server.http.post("/v1/completions", content=b'{"prompt":"x"}')
    assert answer.json()["error"]["code"] == "unsupported_media_type"


def test_a_body_over_the_limit_is_refused(serve):
    server = serve(["ok"], max_body_bytes=1000)
    assert server.complete(prompt="x" * 2000).status_code == 413

    def chunks():
        yield b'{"prompt":"' + b"x" * 2000
        yield b'"}'

    headers = {"content-type": "application/json"}
    assert server.http.post("/v1/completions", content=chunks(), headers=headers).status_code == 413
    assert server.complete(prompt="x").status_code == 200


def test_a_call_over_the_context_says_what_the_limits_are(ok_server):
    for fields in ({"prompt": "x " * 100_000}, {"prompt": "x", "max_tokens": 10**9}):
        answer = ok_server.complete(**fields)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert ok_server.complete(prompt="x").status_code == 200


@pytest.mark.parametrize(
    "content", ["hi", [{"type": "text", "text": "hi"}], [{"type": "text", "text": t} for t in "hi"]]
)
def test_content_may_be_text_or_parts(ok_server, content):
    plain = ok_server.chat().json()["usage"]["prompt_tokens"]
    messages = [{"role": "user", "content": content}]
    assert ok_server.chat(messages=messages).json()["usage"]["prompt_tokens"] == plain


def test_empty_and_absent_history_fields_are_the_same(ok_server):
    variants = [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "assistant", "content": [], "tool_calls": []},
        {"role": "assistant", "content": "", "refusal": None, "annotations": [], "audio": None},
    ]
    user = {"role": "user", "content": "hi"}
    answers = [ok_server.chat(messages=[user, message, user]) for message in variants]
    assert [answer.status_code for answer in answers] == [200] * len(variants)
    assert len({answer.json()["usage"]["prompt_tokens"] for answer in answers}) == 1


def test_unknown_paths_and_methods_have_the_error_shape(ok_server):
    assert ok_server.http.get("/v1/nothing").json()["error"]["code"] == "not_found"
    wrong_method = ok_server.http.get("/v1/completions")
    assert wrong_method.status_code == 405
    assert wrong_method.json()["error"]["type"] == "invalid_request_error"


def test_the_prompt_of_several_choices_is_computed_once(serve):
    server = serve(["ok"])
    before = server.engine.stats().num_computed_tokens
    answer = server.chat("a question that is long enough to fill several pages " * 4, n=4).json()
    computed = server.engine.stats().num_computed_tokens - before
    prompt_tokens = answer["usage"]["prompt_tokens"]
    assert prompt_tokens <= computed < 2 * prompt_tokens
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert len(answer["choices"]) == 4


def test_browsers_of_other_origins_may_call_only_if_configured(serve, ok_server):
    preflight = {"origin": "https://a.example", "access-control-request-method": "POST"}
    closed = ok_server.http.options("/v1/completions", headers=preflight)
    assert "access-control-allow-origin" not in closed.headers
    server = serve(["ok"], cors_origins=("https://a.example",))
    allowed = server.http.options("/v1/completions", headers=preflight)
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    preflight["origin"] = "https://b.example"
    refused = server.http.options("/v1/completions", headers=preflight)
    assert "access-control-allow-origin" not in refused.headers


@pytest.mark.parametrize(
    "text", ["{{ 7 * 7 }}", "{% for x in y %}", "<|im_end|>{{ ''.__class__ }}"]
)
def test_no_text_of_a_request_is_run_as_a_template(ok_server, text):
    body = {"messages": [{"role": "user", "content": text}]}
    tokens = ok_server.http.post("/tokenize", json=body).json()["tokens"]
    shown = ok_server.http.post("/detokenize", json={"tokens": tokens}).json()["prompt"]
    assert text in shown
    assert ok_server.chat(chat_template="{{ 1 }}").json()["error"]["param"] == "chat_template"
    for name in ("messages", "bos_token", "__class__"):
        answer = ok_server.chat(chat_template_kwargs={name: "x"})
        assert answer.status_code in (200, 400)
        assert name == "__class__" or answer.status_code == 400
