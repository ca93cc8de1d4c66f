"""The fields that decide how tokens are chosen, under the names of OpenAI's API and vLLM's.

This is the server's only list of them. A field here has the name that ``SamplingParams`` gives
it, so that the conversion copies by name and can't drift.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from pydantic import Field

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.server.protocol.base import ApiModel, Int

_PARAM_NAMES = frozenset(field.name for field in dataclasses.fields(SamplingParams))


class CommonSampling(ApiModel):
    """What every API offers under one name."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: Int | None = None

    # Names of fields that mean something else than ``SamplingParams`` does under that name.
    OWN_MEANING: ClassVar[frozenset[str]] = frozenset()

    def sampling_values(self) -> dict[str, Any]:
        """The given fields that ``SamplingParams`` has under the same name."""
        return {
            name: value
            for name in self.model_fields_set & _PARAM_NAMES - self.OWN_MEANING
            if (value := getattr(self, name)) is not None
        }


class SamplingFields(CommonSampling):
    """The sampling fields of OpenAI's chat and completions, with vLLM's extensions."""

    max_tokens: Int | None = None
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


def _token_keys(bias: dict[str, float]) -> dict[int, float]:
    """JSON keys are strings; these are token ids."""
    try:
        return {int(token_id): value for token_id, value in bias.items()}
    except ValueError:
        raise InvalidParameterError(
            "the keys of logit_bias are token ids, such as {'42': -100}", param="logit_bias"
        ) from None
