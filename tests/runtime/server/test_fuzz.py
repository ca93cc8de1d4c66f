"""Whatever the body, the answer is a 2xx or a 4xx in the error's shape, and the server lives."""

from __future__ import annotations

import json
import random

import pytest

from ramet.lang.serving import PROGRAMS
from ramet.runtime.testing.scripted_model import Script

HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
BODIES = {
    "/v1/chat/completions": {
        "messages": HI,
        "max_tokens": 3,
        "stop": ["x"],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        "logit_bias": {"5": 1},
        "seed": 3,
        "logprobs": True,
        "top_logprobs": 2,
        "ramet": {"program_id": "p", "steps_to_next_use": 1},
        "chat_template_kwargs": {"a": 1},
    },
    "/v1/completions": {
        "prompt": "x",
        "max_tokens": 3,
        "logprobs": 1,
        "stop_token_ids": [1],
        "bad_words": ["q"],
        "structured_outputs": {"regex": "a+"},
        "prompt_logprobs": 0,
        "priority": 1,
        "cache_salt": "s",
        "top_k": 3,
        "min_p": 0.1,
        "repetition_penalty": 1.1,
    },
    "/tokenize": {"prompt": "x", "add_special_tokens": True},
    "/detokenize": {"tokens": [1, 2]},
    "/v1/abort": {"request_id": "a"},
    "/v1/grammar/check": {"guided_json": {"type": "string"}, "text": "a"},
    "/v1/messages": {
        "model": "m",
        "max_tokens": 3,
        "messages": HI,
        "system": "s",
        "tools": [{"name": "f", "input_schema": SCHEMA}],
        "stop_sequences": ["x"],
    },
    "/v1/programs": {
        "graph": {
            "name": "g",
            "nodes": [
                {"kind": "text", "id": "0", "parts": ["hi "]},
                {
                    "kind": "gen",
                    "id": "1",
                    "parent": "0",
                    "name": "a",
                    "params": {"max_tokens": 3},
                    "constraint": {"kind": "regex", "pattern": "a+"},
                },
                {
                    "kind": "select",
                    "id": "2",
                    "parent": "1",
                    "name": "b",
                    "choices": [["x"], [{"node_id": "1", "spec": ">3"}]],
                },
                {"kind": "join", "id": "3", "parent": "2", "name": "c", "inputs": ["1", "2"]},
            ],
        },
        "seed": 3,
        "deadline_s": 30,
    },
    "/v1/responses": {"input": "hi", "max_output_tokens": 3, "instructions": "x"},
}
JUNK = [
    *(None, True, 0, -1, 1.5, 1e308, 10**30, -(10**30), float("nan")),
    *("", "x", "\x00", "a" * 3000, "{%", "{{7*7}}", "(?=", "<|im_end|>", "\ud800"),
    *([], {}, [[]], [None], {"a": 1}, {"type": "x"}, [{}], [{"role": "user"}], {"$ref": "#"}),
]


def mutate(rng: random.Random, value):
    """``value`` with something in it changed, added or taken away."""
    chance = rng.random()
    if chance < 0.12 or not isinstance(value, dict | list) or not value:
        return rng.choice(JUNK)
    value = value.copy()
    if isinstance(value, list):
        index = rng.randrange(len(value))
        value[index] = mutate(rng, value[index])
        return value
    key = rng.choice(list(value))
    if chance < 0.2:
        del value[key]
    elif chance < 0.3:
        value[rng.choice(["zz", key + "s", key[:-1], "", "a.b"])] = rng.choice(JUNK)
    else:
        value[key] = mutate(rng, value[key])
    return value


@pytest.mark.parametrize("seed", range(4))
def test_malformed_bodies_are_refused_without_effect_on_others(serve, seed):
    rng = random.Random(seed)
    # A short context ends what a mutation has left without a limit.
    server = serve(
        Script(["a "], repeat=True),
        model_options={"max_context_len": 300},
        extensions=(PROGRAMS,),
    )
    for _ in range(250):
        path = rng.choice(list(BODIES))
        body = mutate(rng, BODIES[path])
        raw = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if rng.random() < 0.1:
            at = rng.randrange(len(raw))
            raw = raw[:at] + rng.randbytes(1) + raw[at + rng.randrange(3) :]
        headers = {"content-type": "application/json"}
        answer = server.http.post(path, content=raw, headers=headers)
        assert answer.status_code < 500, (path, raw, answer.text)
        if answer.status_code >= 400:
            assert answer.json()["error"]["message"], (path, raw)
    assert server.chat(max_tokens=2).status_code == 200
