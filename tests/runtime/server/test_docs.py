"""The documentation names every field, every endpoint, and what changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ramet.lang.serving.body import ProgramRequest
from ramet.runtime.server.anthropic import bodies as anthropic
from ramet.runtime.server.openai.chat import bodies as chat
from ramet.runtime.server.openai.completions import bodies as completions
from ramet.runtime.server.openai.embeddings import bodies as embeddings
from ramet.runtime.server.openai.responses import bodies as responses
from ramet.runtime.server.openai.responses import items as responses_items
from ramet.runtime.server.protocol.base import ApiModel
from ramet.runtime.testing import server as testing

DOCS = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
NAMED = set(re.findall(r"`([A-Za-z_]+)`", DOCS))


@pytest.mark.parametrize(
    "body",
    [
        chat.ChatCompletionRequest,
        completions.CompletionRequest,
        embeddings.EmbeddingsRequest,
        responses.ResponsesRequest,
        anthropic.MessagesRequest,
        ProgramRequest,
    ],
)
def test_every_field_of_a_body_is_named(body):
    fields = {field.alias or name for name, field in body.model_fields.items()}
    assert fields <= NAMED


@pytest.mark.parametrize(
    "module",
    [chat, completions, embeddings, responses, responses_items, anthropic],
    ids=lambda m: m.__name__,
)
def test_what_changes_nothing_is_listed(module):
    listed = DOCS.split("change nothing")[1].split("###")[0]
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, ApiModel):
            for field in kind.NO_EFFECT:
                assert f"`{field}`" in listed, f"{name}.{field}"


@pytest.mark.parametrize(
    "module",
    [chat, completions, responses, responses_items, anthropic],
    ids=lambda m: m.__name__,
)
def test_what_is_taken_with_a_warning_is_listed(module):
    listed = DOCS.split("taken with a warning:")[1].split("A few fields")[0]
    for name, kind in vars(module).items():
        if isinstance(kind, type) and issubclass(kind, ApiModel):
            for field in kind.WARNED:
                assert f"`{field}`" in listed, f"{name}.{field}"


def test_every_path_is_named():
    with testing.scripted_server([["x"]]) as server:
        paths = server.http.get("/openapi.json").json()["paths"]
    for path in paths:
        assert path.removesuffix("/{response_id}").removesuffix("/{name}") in DOCS, path
