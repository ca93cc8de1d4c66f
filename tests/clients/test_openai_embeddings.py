"""The official openai package's embeddings, which it asks for in base64 unless told otherwise."""

from __future__ import annotations

import openai
import pytest


def test_both_forms_are_the_same_numbers(serve, openai_client):
    client = openai_client(serve(["ok"]))
    coded = client.embeddings.create(model="m", input=["one", "two"])
    plain = client.embeddings.create(model="m", input=["one", "two"], encoding_format="float")
    assert [each.embedding for each in coded.data] == [each.embedding for each in plain.data]
    assert coded.usage.total_tokens == plain.usage.total_tokens > 0
    assert len(coded.data[0].embedding) == 8


def test_token_ids_and_a_wish_that_can_not_be_granted(serve, openai_client):
    client = openai_client(serve(["ok"]))
    answer = client.embeddings.create(model="m", input=[[40, 41], [42]])
    assert [each.index for each in answer.data] == [0, 1]
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="m", input="x", dimensions=4)
