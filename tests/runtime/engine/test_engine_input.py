"""What a caller gives of the wrong type is refused by name, and hurts nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 3.5),
        ("max_tokens", float("inf")),
        ("max_tokens", "3"),
        ("min_tokens", None),
        ("temperature", "hot"),
        ("temperature", None),
        ("top_p", "x"),
        ("top_p", True),
        ("top_k", 1.5),
        ("min_p", None),
        ("repetition_penalty", "a"),
        ("seed", "x"),
        ("seed", 1.5),
        ("stop", None),
        ("stop", (5,)),
        ("stop", b"x"),
        ("bad_words", (5,)),
        ("stop_token_ids", ("a",)),
        ("stop_token_ids", 5),
        ("allowed_token_ids", "57"),
        ("logit_bias", [1]),
        ("logit_bias", {"5": 1.0}),
        ("logit_bias", {5: "a"}),
        ("ignore_eos", "no"),
        ("skip_special_tokens", None),
        ("logprobs", True),
    ],
)
def test_a_sampling_parameter_of_another_type_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as error:
        SamplingParams(**{name: value})
    assert error.value.param == name


@pytest.mark.parametrize("value", [0.0, 1e-60, 1e-40, 9e-4, 1001.0])
def test_a_repetition_penalty_that_makes_logits_infinite_is_refused(value: float) -> None:
    with pytest.raises(InvalidParameterError, match="repetition_penalty"):
        SamplingParams(repetition_penalty=value)


def test_one_text_is_one_stop_string_and_lists_are_as_good_as_tuples() -> None:
    params: Any = {"stop": "END", "bad_words": "no", "stop_token_ids": [5]}
    given = SamplingParams(**params)
    assert (given.stop, given.bad_words, given.stop_token_ids) == (("END",), ("no",), (5,))
    assert given == SamplingParams(stop=("END",), bad_words=("no",), stop_token_ids=(5,))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", (1, "a")),
        ("prompt", (1.5,)),
        ("params", {"max_tokens": 3}),
        ("constraint", {"type": "object"}),
        ("constraint", "[a-z]"),
        ("priority", "high"),
        ("cache_salt", 5),
        ("tenant", None),
        ("request_id", 5),
        ("deadline_s", "soon"),
        ("deadline_s", float("nan")),
        ("hint", {"program_id": "p"}),
        ("hint.remaining_uses", ProgramHint(program_id="p", remaining_uses="two")),  # type: ignore[arg-type]
        ("hint.steps_to_next_use", ProgramHint(program_id="p", steps_to_next_use=-1)),
        ("hint.critical_path_weight", ProgramHint(program_id="p", critical_path_weight=2.0)),
        ("hint.program_id", ProgramHint(program_id=7)),  # type: ignore[arg-type]
    ],
)
def test_a_request_of_wrong_types_is_refused_and_the_engine_lives(name: str, value: Any) -> None:
    tokenizer = scripted_tokenizer()
    field = {"prompt": "prompt_token_ids"}.get(name, name.partition(".")[0])
    values = {"prompt_token_ids": (70, 71), "params": SamplingParams(max_tokens=2), field: value}
    with Engine(ScriptedModel(tokenizer), tokenizer) as engine:
        with pytest.raises(InvalidParameterError) as error:
            engine.submit(Request(**values))
        assert error.value.param == name
        engine.generate([70, 71], SamplingParams(max_tokens=2))
        engine.check()


@pytest.mark.parametrize("prompt", [None, 5, b"abc", ["a"], [1.5], {5: 5}])
def test_a_prompt_is_a_text_or_token_ids(prompt: Any) -> None:
    tokenizer = scripted_tokenizer()
    with (
        Engine(ScriptedModel(tokenizer), tokenizer) as engine,
        pytest.raises(InvalidParameterError) as error,
    ):
        engine.generate(prompt)
    assert error.value.param == "prompt"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_pages", "x"),
        ("page_size", 16.0),
        ("max_num_seqs", None),
        ("max_waiting", "6"),
        ("seed", "x"),
    ],
)
def test_a_configuration_of_wrong_types_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError) as error:
        EngineConfig(**{name: value})
    assert error.value.param == name
