"""The sampling fields of bodies are the sampling parameters."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.runtime.api.params import SAMPLING_PARAMS, ParamKind, SamplingParams
from ramet.runtime.server.calls.engine_requests import sampling_params
from ramet.runtime.server.openai.chat.bodies import ChatCompletionRequest
from ramet.runtime.server.openai.completions.bodies import CompletionRequest
from ramet.runtime.server.protocol.sampling import SamplingFields

OWN_MEANING = {"logprobs"}  # a flag in chat, a count in completions
BY_KIND: dict[ParamKind, Any] = {
    "integer": 1,
    "number": 0.5,
    "strings": ["a", "b"],
    "token_ids": [3, 4],
    "biases": {"5": -1.5},
}


def test_every_parameter_is_a_field_and_every_field_a_parameter() -> None:
    assert SamplingFields.model_fields.keys() - {"n"} == SAMPLING_PARAMS.keys() - OWN_MEANING


@pytest.mark.parametrize("name", sorted(SAMPLING_PARAMS.keys() - OWN_MEANING))
@pytest.mark.parametrize("body", [ChatCompletionRequest, CompletionRequest])
def test_a_field_sets_its_parameter_and_no_other(body: Any, name: str) -> None:
    kind = SAMPLING_PARAMS[name].kind
    value = BY_KIND[kind] if kind != "boolean" else not getattr(SamplingParams(), name)
    asks = {"prompt": "x"} if body is CompletionRequest else {"messages": [_MESSAGE]}
    found = sampling_params(body.model_validate({**asks, name: value}), {})
    parameter = {5: -1.5} if kind == "biases" else value
    assert found == SamplingParams.from_mapping({name: parameter})
    assert found != SamplingParams()


@pytest.mark.parametrize("body", [ChatCompletionRequest, CompletionRequest])
def test_the_schema_describes_parameters_as_the_table_does(body: Any) -> None:
    properties = body.model_json_schema()["properties"]
    for name in SAMPLING_PARAMS.keys() - OWN_MEANING:
        assert properties[name]["description"] == SAMPLING_PARAMS[name].description


_MESSAGE = {"role": "user", "content": "hi"}
