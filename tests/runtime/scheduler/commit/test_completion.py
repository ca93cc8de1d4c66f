"""``Request.complete``: an output under a constraint ends valid within its ``max_tokens``."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ramet.grammars import (
    Choice,
    ConstraintError,
    Ebnf,
    JsonObject,
    JsonSchema,
    Regex,
    compile_constraint,
)
from ramet.grammars.completion import CompletionSearch
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.scheduler.commit import completion
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
        "notes": {"type": "object"},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}
SHORTEST = '{"name":"","tags":[""]}'


@pytest.fixture(scope="module", params=[True, False], ids=["jump-forward", "token by token"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose model says random things, and to one prompt the same word for ever."""
    tokenizer = scripted_tokenizer(b'":[{', b'","', b'{"a":[[', " on")
    script = Script([" on"], when="ramble", repeat=True)
    config = EngineConfig(forced_tokens=request.param, max_draft_len=4)
    with Engine(ScriptedModel(tokenizer, [script]), tokenizer, config) as engine:
        yield engine
        engine.check()


def run(
    engine: Engine,
    constraint: Any,
    max_tokens: int | None,
    prompt: str = "?",
    complete: bool | None = True,
    **fields: Any,
):
    params = SamplingParams(max_tokens=max_tokens, **{"temperature": 1.0, "seed": 0, **fields})
    prompt_ids = tuple(engine.tokenizer.encode(prompt))
    request = Request(
        prompt_token_ids=prompt_ids, params=params, constraint=constraint, complete=complete
    )
    return engine.submit(request).result(timeout=60)


@pytest.mark.parametrize("max_tokens", [12, 13, 20, 60])
def test_a_text_that_goes_on_is_closed_in_time(engine: Engine, max_tokens: int) -> None:
    schema = PERSON | {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    done = run(engine, JsonSchema(schema), max_tokens, "ramble", temperature=0.0)
    assert Draft202012Validator(schema).is_valid(json.loads(done.text))
    assert done.finish_reason == "stop"
    assert done.usage.completion_tokens <= max_tokens
    assert 0 < done.usage.completion_forced_tokens <= done.usage.forced_tokens
    assert len(json.loads(done.text)["name"]) >= max_tokens - 12


def test_an_output_with_room_to_spare_is_as_it_was(engine: Engine) -> None:
    constraint = Choice(("yes", "no", "perhaps"))
    done = run(engine, constraint, 30)
    assert done.usage.completion_forced_tokens == 0
    assert done.text in constraint.choices


def test_a_budget_below_the_minimum_is_refused_before_anything_is_generated(
    engine: Engine,
) -> None:
    with pytest.raises(
        InvalidParameterError, match=r"max_tokens is 5; the shortest valid output takes \d+"
    ):
        run(engine, JsonSchema(PERSON), 5)


def test_the_shortest_budget_gives_a_shortest_output(engine: Engine) -> None:
    shortest = len(engine.tokenizer.encode(SHORTEST))
    done = run(engine, JsonSchema(PERSON), shortest)
    assert len(json.loads(done.text)["tags"]) == 1
    with pytest.raises(InvalidParameterError, match="the shortest valid output"):
        run(engine, JsonSchema(PERSON), shortest - 1)


@pytest.mark.parametrize(("name", "value"), [("bad_words", ("x",)), ("allowed_token_ids", (65,))])
def test_what_could_break_the_promise_is_refused(engine: Engine, name: str, value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=f"complete can't be combined with {name}"):
        run(engine, JsonObject(), 30, **{name: value})


@pytest.mark.parametrize("max_tokens", [20, 90, 200])
def test_an_output_goes_on_while_no_completion_is_found_and_ends_in_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, max_tokens: int
) -> None:
    monkeypatch.setattr(completion, "_STEP_WORK", 0)
    schema = PERSON | {"title": f"{max_tokens} {engine.config.forced_tokens}"}
    done = run(engine, JsonSchema(schema), max_tokens, "ramble", complete=None, temperature=0.0)
    assert Draft202012Validator(schema).is_valid(json.loads(done.text))
    assert done.finish_reason == "stop"
    assert done.usage.completion_forced_tokens > 0
    assert done.usage.completion_tokens > max_tokens // 2


def test_without_a_constraint_there_is_nothing_to_complete(engine: Engine) -> None:
    with pytest.raises(InvalidParameterError, match="complete needs a constraint"):
        run(engine, None, 30)


def test_the_first_search_is_not_the_step_threads(engine: Engine, monkeypatch) -> None:
    threads: list[str] = []
    shortest = CompletionSearch.shortest

    def noting(self: CompletionSearch, *args: Any, **options: Any) -> Any:
        threads.append(threading.current_thread().name)
        return shortest(self, *args, **options)

    monkeypatch.setattr(CompletionSearch, "shortest", noting)
    run(engine, JsonSchema({**PERSON, "title": str(engine.config.forced_tokens)}), 40)
    assert threads[0] != "ramet-engine"
    assert "ramet-engine" in threads


PAIRS = r"""
root ::= item ("," item)*
item ::= [a-z]+ "=" (text | "{" root "}")
text ::= "\"" [^"]* "\""
"""
names = st.sampled_from(["a", "b", "name", "é"])
leaves = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "string", "minLength": 3},
        {"type": "string", "pattern": "^[a-c]{2,4}$"},
        {"enum": ["x", 12, None]},
        {"type": "boolean"},
        {},
    ]
)
schemas: st.SearchStrategy[dict[str, Any]] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": st.integers(0, 3), "uniqueItems": st.just(False)},
        ),
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=3)},
            optional={
                "required": st.lists(names, max_size=2, unique=True),
                "additionalProperties": st.booleans(),
                "minProperties": st.integers(0, 2),
            },
        ),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=2)}),
    ),
    max_leaves=5,
)
others = st.sampled_from(
    [
        Regex(r"[a-f]{2,9}(-[0-9]{4})*"),
        Ebnf('root ::= "(" root ")" | "[" root "," root "]" | [0-9]+'),
        Choice(("on", "once", "upon a time")),
        JsonObject(),
        Regex(r"(?=.*[0-9])[a-z0-9]{3,12}"),
        Ebnf(PAIRS),
    ]
)


def check_that_it_ends_in_time(engine: Engine, constraint: Any, max_tokens: int, seed: int) -> None:
    try:
        grammar = compile_constraint(constraint, engine.vocabulary)
    except ConstraintError:
        return
    shortest = len(grammar.matcher().shortest_completion())
    if max_tokens < shortest:  # in bytes; the engine's answer is by tokens, which are fewer
        try:
            done = run(engine, constraint, max_tokens, seed=seed)
        except InvalidParameterError:
            return
    else:
        done = run(engine, constraint, max_tokens, seed=seed)
    assert grammar.match(done.text), (constraint, done.text)
    assert done.finish_reason == "stop"
    assert done.usage.completion_tokens <= max_tokens


quick = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(quick, max_examples=120)
@given(schemas.map(JsonSchema) | others, st.integers(1, 40), st.integers(0, 99))
def test_every_output_is_complete_or_refused(
    engine: Engine, constraint: Any, max_tokens: int, seed: int
) -> None:
    check_that_it_ends_in_time(engine, constraint, max_tokens, seed)
