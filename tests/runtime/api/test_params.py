"""The table of sampling parameters is the one list that all others agree with."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ramet.kernels.sampling.rows import SamplingRows
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import PARAM_ALIASES, SAMPLING_PARAMS, SamplingParams

RANGED = {name: spec for name, spec in SAMPLING_PARAMS.items() if math.isfinite(spec.minimum)}


def make(**values):
    if values.get("max_tokens") == 0:
        values["prompt_logprobs"] = 0
    return SamplingParams(**values)


def test_the_table_lists_the_fields_in_order():
    assert list(SAMPLING_PARAMS) == [field.name for field in dataclasses.fields(SamplingParams)]


def test_every_number_is_an_array_of_the_sampling_rows():
    rows = {field.name for field in dataclasses.fields(SamplingRows)}
    assert {name for name, spec in SAMPLING_PARAMS.items() if spec.kind == "number"} <= rows


def test_every_parameter_is_described_in_a_sentence():
    assert all(spec.description.endswith(".") for spec in SAMPLING_PARAMS.values())


def test_aliases_are_no_names():
    assert not PARAM_ALIASES.keys() & SAMPLING_PARAMS.keys()
    assert PARAM_ALIASES["max_new_tokens"] == "max_tokens"


def test_defaults_are_in_range():
    assert SamplingParams() == SamplingParams.from_mapping({})


@pytest.mark.parametrize("name", RANGED)
@given(data=st.data())
def test_what_is_in_range_is_taken_and_the_rest_refused_by_name(name, data):
    spec = RANGED[name]
    top = min(spec.maximum, 1e4)
    kind = st.integers if spec.kind == "integer" else st.floats
    low, high = (int(spec.minimum), int(top)) if spec.kind == "integer" else (spec.minimum, top)
    value = data.draw(kind(low, high))
    refused = [low - 1, math.nan] if spec.kind == "number" else [low - 1]
    if math.isfinite(spec.maximum):
        refused.append(spec.maximum * 2 + 1)
    if spec.excludes_minimum:
        refused.append(spec.minimum)
    if value not in refused:
        values = {"max_tokens": 10_000} if name == "min_tokens" else {}
        assert getattr(make(**{name: value}, **values), name) == value
    for wrong in refused:
        with pytest.raises(InvalidParameterError) as raised:
            make(**{name: wrong if spec.kind == "number" else int(wrong)})
        assert raised.value.param == name


def test_help_describes_each_parameter():
    lines = (SamplingParams.__doc__ or "").splitlines()
    for name, spec in SAMPLING_PARAMS.items():
        assert f"        {name}: {spec.description}" in lines
