"""Completions: prompts of each shape, echo, log-probabilities, token ids."""

from __future__ import annotations

from ramet.runtime.testing.scripted_model import Script


def test_prompts_may_be_text_ids_and_lists_of_either(serve):
    server = serve(Script(["A"], when="first"), Script(["B"], when="second"), Script(["C"]))
    ids = server.engine.tokenizer.encode("the second")
    cases = [
        ("the first", ["A"]),
        (ids, ["B"]),
        (["the first", "the second"], ["A", "B"]),
        ([ids, ids], ["B", "B"]),
        (["the first", ids], ["A", "B"]),
    ]
    for prompt, expected in cases:
        answer = server.complete(prompt=prompt).json()
        assert [choice["text"] for choice in answer["choices"]] == expected
        assert [choice["index"] for choice in answer["choices"]] == list(range(len(expected)))


def test_choices_of_several_prompts_come_prompt_by_prompt(serve):
    server = serve(Script(["A"], when="first"), Script(["B"], when="second"))
    answer = server.complete(prompt=["the first", "the second"], n=2).json()
    assert [choice["text"] for choice in answer["choices"]] == ["A", "A", "B", "B"]
    alone = [server.complete(prompt=p).json()["usage"] for p in ("the first", "the second")]
    assert answer["usage"]["prompt_tokens"] == sum(usage["prompt_tokens"] for usage in alone)


def test_echo_puts_the_prompt_before_the_text(serve, text_of):
    server = serve([" there"])
    ids = server.engine.tokenizer.encode("hé")
    for prompt in ("hé", ids):
        assert server.complete(prompt=prompt, echo=True).json()["choices"][0]["text"] == "hé there"
        assert text_of(server.stream("/v1/completions", prompt=prompt, echo=True)) == "hé there"


def test_logprobs_are_parallel_lists_whose_offsets_point_into_the_text(serve):
    server = serve(["a", b"\xc3", b"\xa9", "c"])
    choice = server.complete(prompt="x", logprobs=1, max_tokens=4).json()["choices"][0]
    assert choice["text"] == "aéc"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xa9", "c"]
    assert logprobs["text_offset"] == [0, 1, 1, 2]
    assert all(value <= 0 for value in logprobs["token_logprobs"])
    assert all(
        token in top
        for token, top in zip(logprobs["tokens"], logprobs["top_logprobs"], strict=True)
    )


def test_echo_with_logprobs_scores_the_prompt(serve):
    server = serve(["c"])
    fields = {"prompt": "ab", "echo": True, "logprobs": 1}
    logprobs = server.complete(**fields, max_tokens=1).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["a", "b", "c"]
    assert logprobs["token_logprobs"][0] is None
    assert all(value <= 0 for value in logprobs["token_logprobs"][1:])
    assert logprobs["text_offset"] == [0, 1, 2]
    again = server.complete(**fields, max_tokens=1).json()["choices"][0]["logprobs"]
    assert again == logprobs


def test_echo_without_output_scores_alone(serve):
    server = serve(["c"])
    answer = server.complete(prompt="ab", echo=True, logprobs=0, max_tokens=0).json()
    choice = answer["choices"][0]
    assert choice["text"] == "ab"
    assert choice["logprobs"]["tokens"] == ["a", "b"]
    assert answer["usage"]["completion_tokens"] == 0


def test_prompt_logprobs_are_a_mapping_a_token(serve):
    server = serve(["c"])
    ids = server.engine.tokenizer.encode("abc")
    choice = server.complete(prompt="abc", prompt_logprobs=2, max_tokens=1).json()["choices"][0]
    first, *rest = choice["prompt_logprobs"]
    assert first is None
    assert len(rest) == len(ids) - 1
    assert all(str(token_id) in entry for token_id, entry in zip(ids[1:], rest, strict=True))


def test_token_ids_are_returned_when_asked(serve):
    server = serve(["a", "b"])
    prompt = server.engine.tokenizer.encode("xyz")
    whole = server.complete(prompt=prompt, return_token_ids=True).json()["choices"][0]
    assert whole["prompt_token_ids"] == prompt
    assert server.engine.tokenizer.decode(whole["token_ids"]) == "ab"
    chunks = server.stream("/v1/completions", prompt=prompt, return_token_ids=True)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert choices[0]["prompt_token_ids"] == prompt
    assert [i for choice in choices for i in choice["token_ids"]] == whole["token_ids"]


def test_stop_token_ids_and_end_of_text(serve):
    server = serve(["a", "<|reserved|>", "b"])
    reserved = server.engine.tokenizer.special_id("<|reserved|>")
    stopped = server.complete(prompt="x", stop_token_ids=[reserved]).json()["choices"][0]
    assert (stopped["text"], stopped["finish_reason"], stopped["stop_reason"]) == (
        "a",
        "stop",
        reserved,
    )
    assert server.complete(prompt="x").json()["choices"][0]["text"] == "ab"
    shown = server.complete(prompt="x", skip_special_tokens=False, stop=["b"]).json()["choices"][0]
    assert shown["text"] == "a<|reserved|>"


def test_min_tokens_and_ignore_eos_go_past_the_end(serve):
    server = serve(["a"])
    fields = {"prompt": "x", "ignore_eos": True, "max_tokens": 7}
    answer = server.complete(**fields).json()
    assert answer["usage"]["completion_tokens"] == 7
    assert answer["choices"][0]["finish_reason"] == "length"
