"""Sampling fields of request bodies, under the names of OpenAI's API and vLLM's.

A field has the name of its parameter in ``SAMPLING_PARAMS``, which describes it and has its range;
the conversion copies by name. A test checks that names and types agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SAMPLING_PARAMS
from ramet.runtime.server.protocol.base import ApiModel, Int, TokenLimit


class CommonSampling(ApiModel):
    """Sampling fields that every API has under the same name."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None

    # Fields whose meaning differs from the parameter of the same name.
    OWN_MEANING: ClassVar[frozenset[str]] = frozenset()
    FIELD_OF: ClassVar[Mapping[str, str]] = {}
    """The fields by parameter, where another name is this API's."""

    def field_of(self, param: str) -> str:
        """The body's field that sets a parameter."""
        return self.FIELD_OF.get(param, param)

    def sampling_values(self) -> dict[str, Any]:
        """The given fields that are parameters, by name."""
        return {
            name: value
            for name in self.model_fields_set & SAMPLING_PARAMS.keys() - self.OWN_MEANING
            if (value := getattr(self, name)) is not None
        }


class SamplingFields(CommonSampling):
    """Sampling fields of OpenAI's chat and completions, with vLLM's extensions."""

    max_tokens: TokenLimit = None
    min_tokens: Int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: Int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[Int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: Int | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[Int] | None = None
    bad_words: list[str] | None = None
    n: Int = Field(default=1)

    def sampling_values(self) -> dict[str, Any]:
        values = CommonSampling.sampling_values(self)
        if isinstance(self.stop, str):
            values["stop"] = [self.stop]
        if self.logit_bias is not None:
            values["logit_bias"] = _token_keys(self.logit_bias)
        return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}


for _model in (CommonSampling, SamplingFields):
    for _name, _field in _model.model_fields.items():
        if _name in SAMPLING_PARAMS:
            _field.description = SAMPLING_PARAMS[_name].description


def _token_keys(bias: dict[str, float]) -> dict[int, float]:
    """Converts the keys of a JSON object to token ids."""
    try:
        return {int(token_id): value for token_id, value in bias.items()}
    except ValueError:
        raise InvalidParameterError(
            "the keys of logit_bias must be token ids, such as {'42': -100}", param="logit_bias"
        ) from None
