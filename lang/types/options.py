"""The options of a generation, listed once: for ``gen``, ``s.gen`` and a run's defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from ramet.grammars.constraints import Constraint, Ebnf, Regex
from ramet.lang.base.errors import UsageError
from ramet.lang.types.patterns import Pattern, choice, json
from ramet.lang.types.types import TEXT, OutputType, output_type, text_matching
from ramet.runtime.api.params import PARAM_ALIASES, SamplingParams
from ramet.runtime.api.request import DEFAULT_LANDING

DEFAULT_MAX_TOKENS = 256
"""Of free text. What is held to a type ends by itself, and may take what the context has."""

_DEFAULTS = SamplingParams()


class SamplingOptions(TypedDict, total=False):
    """The fields of ``runtime.SamplingParams``, for completion in editors."""

    max_tokens: int | None
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int | None
    stop: str | list[str] | tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    include_stop_str_in_output: bool
    ignore_eos: bool
    skip_special_tokens: bool
    logprobs: int | None
    logit_bias: Mapping[int, float]
    allowed_token_ids: tuple[int, ...] | None
    bad_words: tuple[str, ...]


class GenOptions(SamplingOptions, total=False):
    """Sampling parameters, and at most one description of what the text must be.

    ``choices`` makes the model write one of some texts (``select`` scores them instead);
    ``json_schema`` is a dict, a JSON text or a type; ``dtype`` is the second argument of ``gen``
    by another name.

    ``complete`` lets an output that is held to a constraint end valid within ``max_tokens``: where
    a token would leave too few for any valid end, the shortest end is written instead. It is on
    where nothing else (``bad_words``, ``allowed_token_ids``) could forbid its end. ``landing`` lets
    such an output end softly: from half of ``max_tokens`` on (True), or another share of it, tokens
    that close the output gain likelihood.
    """

    complete: bool | None
    landing: bool | float | None
    regex: str
    choices: list[str] | tuple[str, ...]
    json_schema: Any
    ebnf: str
    dtype: Any
    constraint: Constraint | Pattern


_OUTPUT_OPTIONS = tuple(
    GenOptions.__annotations__.keys()
    - SamplingOptions.__annotations__.keys()
    - {"complete", "landing"}
)


def split_options(type_: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], OutputType[Any]]:
    """Sampling values (not yet checked) and the output type that the options ask for.

    Raises:
        UsageError: more than one description of what the text must be.
    """
    sampling = {name: value for name, value in options.items() if name not in _OUTPUT_OPTIONS}
    asked = {name: options[name] for name in _OUTPUT_OPTIONS if options.get(name) is not None}
    if type_ is not None:
        asked["type"] = type_
    if len(asked) > 1:
        raise UsageError(
            f"give one description of the text, not several: {', '.join(sorted(asked))}"
        )
    if not asked:
        return sampling, TEXT
    option, value = asked.popitem()
    return sampling, dataclasses.replace(_output(option, value), option=option)


def _output(option: str, value: Any) -> OutputType[Any]:
    if option == "regex":
        return text_matching(Regex(_text(option, value)))
    if option == "choices":
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise UsageError(f"choices takes a list of texts, not {value!r}")
        return text_matching(choice(*value).constraint)
    if option == "json_schema":
        return text_matching(json(value).constraint)
    if option == "ebnf":
        return text_matching(Ebnf(_text(option, value)))
    if isinstance(value, OutputType):
        return value
    if isinstance(value, Pattern):
        return text_matching(value.constraint)
    if isinstance(value, Constraint):
        return text_matching(value)
    return output_type(value)


def _text(option: str, value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{option} takes a text, not {value!r}")
    return value


def landing_share(landing: object, output: OutputType[Any]) -> float | None:
    """``Request.landing`` of the option.

    Raises:
        UsageError: it is no share, or the output is free text.
    """
    if landing is None or landing is False:
        return None
    if not isinstance(landing, bool | int | float) or not 0 <= landing <= 1:
        raise UsageError(f"landing is True or a share of max_tokens in [0, 1), not {landing!r}")
    if output.constraint is None:
        raise UsageError("landing needs a type or pattern: free text has no end to land at")
    if landing is True:
        return DEFAULT_LANDING
    if landing == 1:
        raise UsageError("landing is a share of max_tokens below 1, or True")
    return float(landing)


def sampling_params(
    defaults: Mapping[str, Any], own: Mapping[str, Any], *, is_typed: bool = False
) -> SamplingParams:
    """A call's parameters: its own over the run's defaults over the language's.

    Raises:
        InvalidParameterError: an unknown name, or a value out of range.
    """
    values: dict[str, Any] = {"max_tokens": None if is_typed else DEFAULT_MAX_TOKENS, **defaults}
    for name, value in own.items():
        values[PARAM_ALIASES.get(name, name)] = value
    if values.get("stop") is None:
        values.pop("stop", None)
    return SamplingParams.from_mapping(values)


def given_fields(params: SamplingParams) -> list[str]:
    """The parameters that differ from their defaults."""
    return [
        field.name
        for field in dataclasses.fields(params)
        if getattr(params, field.name) != getattr(_DEFAULTS, field.name)
    ]


def brief_params(params: SamplingParams) -> dict[str, Any]:
    """Those of them that are numbers or texts, or lists of these, as JSON data."""
    values = {name: getattr(params, name) for name in given_fields(params)}
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    return {name: v for name, v in plain.items() if not isinstance(v, Mapping)}
