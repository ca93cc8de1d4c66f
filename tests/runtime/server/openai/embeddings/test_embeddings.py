"""``/v1/embeddings`` over a socket, on the scripted model's made-up hidden states."""

from __future__ import annotations

import base64
import json
import socket
import threading

import numpy as np
import pytest

from ramet.runtime.testing.scripted_model import Script, scripted_states


def embed(server, given, **fields):
    return server.http.post("/v1/embeddings", json={"model": "m", "input": given, **fields})


def expected(ids, pooling="mean"):
    states = scripted_states(np.array(ids), np.arange(len(ids))).astype(np.float64)
    total = states.sum(axis=0) if pooling == "mean" else states[-1]
    return total / np.sqrt(np.square(total).sum())


def token_ids(server, text):
    return server.http.post("/tokenize", json={"prompt": text}).json()["tokens"]


def test_a_text_becomes_a_vector(ok_server):
    answer = embed(ok_server, "one river")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    ids = token_ids(ok_server, "one river")
    assert body["object"] == "list"
    assert body["model"] == "m"
    assert body["usage"] == {"prompt_tokens": len(ids), "total_tokens": len(ids)}
    (entry,) = body["data"]
    assert (entry["object"], entry["index"]) == ("embedding", 0)
    np.testing.assert_allclose(entry["embedding"], expected(ids), atol=1e-6)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_all_shapes_of_input_give_the_same_vectors(ok_server, pooling):
    texts = ["a", "bb bb", "a longer text, of several words and more than a page of tokens"]
    ids = [token_ids(ok_server, text) for text in texts]

    def vectors(given):
        answer = embed(ok_server, given, pooling=pooling).json()
        assert [entry["index"] for entry in answer["data"]] == list(range(len(answer["data"])))
        return [entry["embedding"] for entry in answer["data"]]

    alone = [vectors(text)[0] for text in texts]
    assert vectors(texts) == alone
    assert vectors(ids) == alone
    assert vectors([texts[0], ids[1], texts[2]]) == alone
    assert vectors(ids[1]) == [alone[1]]
    for vector, each in zip(alone, ids, strict=True):
        np.testing.assert_allclose(vector, expected(each, pooling), atol=1e-6)


def test_base64_is_the_same_numbers(ok_server):
    plain = embed(ok_server, ["x", "yy"]).json()["data"]
    coded = embed(ok_server, ["x", "yy"], encoding_format="base64").json()["data"]
    for left, right in zip(plain, coded, strict=True):
        decoded = np.frombuffer(base64.b64decode(right["embedding"]), "<f4")
        assert decoded.tolist() == left["embedding"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": [[1], []]}, "input[1]"),
        ({"input": [10**6]}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": [5] * 100}, "input"),
        ({"input": ["a", [5] * 100]}, "input[1]"),
        ({"input": ["a"] * 5}, "input"),
        ({"input": "a", "dimensions": 4}, "dimensions"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "pooling": "max"}, "pooling"),
        ({"input": "a", "normalize": False}, "normalize"),
        ({"input": "a", "truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ({"input": "a", "encoding_fromat": "float"}, "encoding_fromat"),
        ({"input": "a", "temperature": 1}, "temperature"),
        ({}, "input"),
    ],
)
def test_what_can_not_be_is_refused_by_name(serve, fields, param):
    server = serve(["ok"], model_options={"max_context_len": 64}, max_inputs=4)
    answer = server.http.post("/v1/embeddings", json={"model": "m", **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert server.num_live() == 0
    assert embed(server, "a").status_code == 200


def test_what_changes_nothing_and_an_unknown_model(ok_server):
    assert embed(ok_server, "a", user="me", normalize=True, dimensions=None).status_code == 200
    assert embed(ok_server, "a", model="other").status_code == 404


def test_a_runner_that_shows_no_states_is_an_error_by_name(serve, monkeypatch):
    from ramet.runtime.testing import scripted_model as scripted

    monkeypatch.setattr(scripted.ScriptedModel, "has_hidden_states", False)
    server = serve(["ok"])
    answer = embed(server, "a")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_parameter"
    assert server.chat().status_code == 200


def test_it_is_counted_and_shares_the_engine_with_chats(serve):
    server = serve(Script(["word "], repeat=True), model_options={"step_delay_s": 0.001})
    alone = embed(server, ["one", "two"]).json()["data"]
    chat = threading.Thread(target=server.chat, kwargs={"max_tokens": 200})
    chat.start()
    for _ in range(5):
        assert embed(server, ["one", "two"]).json()["data"] == alone
    chat.join()
    assert server.metric("vllm:request_success_total", finished_reason="stop") == 12


def test_a_client_that_leaves_takes_its_inputs_with_it(serve, wait_until):
    server = serve(["ok"], model_options={"step_delay_s": 0.05, "max_context_len": 8192})
    body = json.dumps({"input": [[5] * 3000] * 2}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", server.http_server.port)) as connection:
        connection.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        wait_until(lambda: server.num_live() == 2)
    wait_until(lambda: server.num_live() == 0)


@pytest.mark.parametrize("path", ["/health", "/ready", "/version", "/metrics", "/v1/models"])
def test_head_is_get_without_the_body(ok_server, path):
    got, head = ok_server.http.get(path), ok_server.http.head(path)
    assert head.status_code == got.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]
    if path != "/metrics":  # they have moved meanwhile
        assert int(head.headers["content-length"]) == len(got.content)
    assert ok_server.http.head("/v1/embeddings").status_code == 405
    assert ok_server.http.head("/nowhere").status_code == 404


def test_an_empty_user_message_is_a_message(ok_server):
    assert ok_server.chat("").json()["choices"][0]["message"]["content"] == "ok"


def test_metrics_carry_the_served_name(serve):
    server = serve(["ok"], served_model_names=("shown", "m"))
    assert server.chat().status_code == 200
    labels = {"model_name": "shown", "finished_reason": "stop"}
    assert server.metric("vllm:request_success_total", **labels) == 1


def test_a_call_of_many_inputs_leaves_room_for_others(serve):
    seen = []
    server = serve(
        ["ok"],
        model_options={"before_step": lambda batch: seen.append(batch.num_rows)},
        max_choices=4,
    )
    inputs = [[40 + i % 50, 41, 42 + i % 7] for i in range(150)]
    vectors = [entry["embedding"] for entry in embed(server, inputs).json()["data"]]
    for vector, ids in zip(vectors, inputs, strict=True):
        np.testing.assert_allclose(vector, expected(ids), atol=1e-6)
    assert 1 < max(seen) <= 4
    assert server.num_live() == 0


def test_a_call_of_many_inputs_can_be_aborted(serve, wait_until):
    server = serve(["ok"], model_options={"step_delay_s": 0.02}, max_choices=4)
    answers = []
    call = threading.Thread(
        target=lambda: answers.append(embed(server, [[5] * 300] * 100, request_id="many"))
    )
    call.start()
    wait_until(lambda: server.num_live() == 4)
    assert server.http.post("/v1/abort", json={"request_id": "many"}).status_code == 200
    call.join(10)
    assert answers[0].status_code == 499
    wait_until(lambda: server.num_live() == 0)
