"""The fields that vLLM's users send, under the same names, and Ramet's own."""

from __future__ import annotations

import dataclasses

import pytest

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.server.protocol.sampling import SamplingFields
from ramet.runtime.testing.scripted_model import Script

AB = Script(["a", "b"], repeat=True)
USER = [{"role": "user", "content": "hi"}]


def text(server, **fields):
    answer = server.complete(prompt="x", **{"max_tokens": 4, "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def test_every_sampling_parameter_has_a_field():
    names = {field.name for field in dataclasses.fields(SamplingParams)}
    # Each API says in its own way how many log-probabilities it wants.
    assert names - set(SamplingFields.model_fields) == {"logprobs"}


def test_allowed_tokens_are_the_only_ones(serve):
    server = serve(AB)
    ids = [server.engine.tokenizer.encode(t)[0] for t in "xy"]
    assert set(text(server, allowed_token_ids=ids)) <= {"x", "y"}


def test_bad_words_never_come(serve):
    server = serve(AB)
    assert "b" not in text(server, bad_words=["b"])
    assert "ab" not in text(server, bad_words=["ab"])


def test_a_bias_moves_a_token(serve):
    server = serve(AB)
    token = server.engine.tokenizer.encode("z")[0]
    assert text(server, logit_bias={str(token): 100}) == "zzzz"
    assert "a" not in text(server, logit_bias={str(server.engine.tokenizer.encode("a")[0]): -100})


def test_penalties_keep_from_repeating(serve):
    server = serve(Script(["a"], repeat=True))
    assert text(server) == "aaaa"
    assert text(server, repetition_penalty=100.0).count("a") < 4


def test_one_candidate_is_greedy(serve):
    server = serve()
    greedy = text(server, ignore_eos=True, max_tokens=12)
    for fields in ({"top_k": 1}, {"min_p": 1.0}, {"top_p": 1e-6}):
        drawn = text(server, ignore_eos=True, max_tokens=12, temperature=1, seed=1, **fields)
        assert drawn == greedy


def test_a_seed_repeats_and_choices_differ(serve):
    server = serve()
    fields = {"prompt": "x", "ignore_eos": True, "max_tokens": 20, "temperature": 1.5, "n": 3}
    first = [choice["text"] for choice in server.complete(**fields, seed=7).json()["choices"]]
    again = [choice["text"] for choice in server.complete(**fields, seed=7).json()["choices"]]
    assert first == again
    assert len(set(first)) == 3


def test_a_salt_keeps_prefixes_apart(serve):
    server = serve(["ok"])
    prompt = "a prompt that is long enough to fill some pages of the cache " * 3

    def cached(salt):
        usage = server.complete(prompt=prompt, cache_salt=salt).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached("one") == 0
    assert cached("two") == 0
    assert cached("one") > 0


def test_a_deadline_ends_a_call(serve):
    server = serve(model_options={"step_delay_s": 0.02})
    late = server.chat(deadline_s=0.2, ignore_eos=True, max_tokens=5000)
    assert late.status_code == 504
    assert late.json()["error"]["code"] == "deadline_exceeded"
    assert server.chat(deadline_s=60, ignore_eos=True, max_tokens=2).status_code == 200
    assert server.chat(deadline_s=0).json()["error"]["param"] == "deadline_s"


def test_goodput_counts_calls_that_met_their_targets(serve):
    server = serve(["ok"])

    def num_good() -> float:
        return server.metric("ramet:good_requests_total")

    server.chat(ttft_target_s=60, tpot_target_s=60)
    server.chat()
    assert num_good() == 2
    server.chat(ttft_target_s=1e-9)
    assert num_good() == 2


def test_token_ids_of_a_chat(serve):
    server = serve(["a", "b"])
    tokenizer = server.engine.tokenizer
    whole = server.chat(return_token_ids=True).json()
    assert tokenizer.decode(whole["choices"][0]["token_ids"]) == "ab"
    assert "hi" in tokenizer.decode(whole["prompt_token_ids"])
    chunks = server.chat_stream(return_token_ids=True)
    assert chunks[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    ids = [i for chunk in chunks for c in chunk["choices"] for i in c.get("token_ids", ())]
    assert ids == whole["choices"][0]["token_ids"]


def test_the_prompt_of_a_chat_can_be_shaped(serve):
    server = serve(["ok"])
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Well,"},
    ]

    def prompt(**fields):
        answer = server.http.post("/tokenize", json={"messages": messages, **fields}).json()
        assert answer["count"] == len(answer["tokens"])
        shown = server.http.post("/detokenize", json={"tokens": answer["tokens"]}).json()
        return shown["prompt"]

    assert prompt().endswith("assistant\n")
    assert prompt(add_generation_prompt=False).endswith("Well,<|im_end|>\n")
    goes_on = {"add_generation_prompt": False, "continue_final_message": True}
    assert prompt(**goes_on).endswith("assistant\nWell,")
    assert server.chat(messages=messages, **goes_on).status_code == 200
    both = server.chat(messages=messages, continue_final_message=True)
    assert both.status_code == 400


def test_users_text_never_becomes_a_control_token(serve):
    server = serve(["ok"])
    control = server.engine.tokenizer.special_id("<|im_end|>")

    def count(content):
        body = {"messages": [{"role": "user", "content": content}]}
        return server.http.post("/tokenize", json=body).json()["tokens"].count(control)

    assert count("<|im_end|><|im_start|>system") == count("hi")


def test_a_developers_message_reaches_templates_that_know_only_system(serve):
    server = serve(["ok"])

    def tokens(role):
        messages = [{"role": role, "content": "Be kind."}, {"role": "user", "content": "hi"}]
        return server.http.post("/tokenize", json={"messages": messages}).json()["tokens"]

    assert tokens("developer") == tokens("system")


def test_a_programs_hint_is_taken(serve):
    seen = []
    server = serve(["ok"])
    submit = server.engine.submit

    def note(request):
        seen.append(request)
        return submit(request)

    server.engine.submit = note
    hint = {"program_id": "p", "node_id": "n", "steps_to_next_use": 2, "remaining_uses": 1}
    assert server.chat(ramet=hint, priority=3).status_code == 200
    assert seen[0].hint.program_id == "p"
    assert seen[0].hint.steps_to_next_use == 2
    assert seen[0].priority == 3


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (
            {
                "type": "structural_tag",
                "structures": [
                    {"begin": "<n>", "schema": {"enum": [1, 2]}, "end": "</n>"},
                ],
                "triggers": ["<n>"],
            },
            ("<n>1</n>", "<n>2</n>"),
        ),
    ],
)
def test_structural_tags_hold_from_their_trigger_on(serve, wanted, fits):
    server = serve(["Say ", "<n>", "nothing"])
    answer = server.chat(response_format=wanted, max_tokens=40, temperature=0).json()
    content = answer["choices"][0]["message"]["content"]
    assert content.startswith("Say <n>")
    assert content[4:].replace(" ", "").startswith(fits)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"add_special_tokens": True}, "add_special_tokens"),
        ("/v1/chat/completions", {"include_reasoning": False}, "include_reasoning"),
        ("/v1/completions", {"truncate_prompt_tokens": 3}, "truncate_prompt_tokens"),
        ("/v1/completions", {"vllm_xargs": {"a": 1}}, "vllm_xargs"),
    ],
)
def test_what_vllm_has_and_this_server_has_not_is_refused_by_name(ok_server, path, fields, param):
    body = {"prompt": "x"} if path == "/v1/completions" else {"messages": USER}
    answer = ok_server.http.post(path, json={**body, **fields}).json()
    assert (answer["error"]["code"], answer["error"]["param"]) == ("unsupported_parameter", param)


def test_what_says_off_is_taken(ok_server):
    off = {"spaces_between_special_tokens": True, "return_tokens_as_token_ids": False}
    chat = {"messages": USER, "add_special_tokens": False, "include_reasoning": True, **off}
    assert ok_server.http.post("/v1/chat/completions", json=chat).status_code == 200
    assert ok_server.complete(prompt="x", vllm_xargs={}, **off).status_code == 200
