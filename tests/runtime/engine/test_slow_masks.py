"""A mask that takes longer than a step may holds up nobody but its own stream."""

from __future__ import annotations

import threading

import pytest

from ramet.grammars import Ebnf, JsonSchema, Matcher, Regex
from ramet.runtime.api.errors import RequestAbortedError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine, EngineConfig
from ramet.runtime.testing.scripted_model import Script, ScriptedModel
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

CONSTRAINTS = [
    Regex("a{3}b+c"),
    JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": 5}),
    JsonSchema({"properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}),
    Ebnf('root ::= "(" root ")" | [a-z]+'),
]


def _engine(**settings) -> Engine:  # type: ignore[no-untyped-def]
    tokenizer = scripted_tokenizer()
    model = ScriptedModel(tokenizer, [Script(["a"], repeat=True)])
    return Engine(model, tokenizer, EngineConfig(seed=0, **settings))


def _request(constraint=None, max_tokens=12, prompt=(65,), **params):  # type: ignore[no-untyped-def]
    sampling = SamplingParams(max_tokens=max_tokens, **params)
    return Request(prompt_token_ids=prompt, params=sampling, constraint=constraint)


@pytest.fixture
def held(monkeypatch):  # type: ignore[no-untyped-def]
    """Masks are all made in the background, and there only once this is set."""
    ready, begun = threading.Event(), threading.Event()
    make = Matcher.fill_mask_in_background

    def wait_and_make(self, row):  # type: ignore[no-untyped-def]
        begun.set()
        assert ready.wait(60)
        make(self, row)

    monkeypatch.setattr(Matcher, "try_mask", lambda self, row, seconds: False)
    monkeypatch.setattr(Matcher, "fill_mask_in_background", wait_and_make)
    ready.begun = begun  # type: ignore[attr-defined]
    yield ready
    ready.set()


def test_others_go_on_while_a_mask_is_made(held) -> None:  # type: ignore[no-untyped-def]
    with _engine() as engine:
        slow = engine.submit(_request(CONSTRAINTS[0], temperature=0))
        assert held.begun.wait(30)
        assert engine.submit(_request(temperature=0)).result(timeout=30).text == "a" * 12
        assert not slow.ended
        held.set()
        assert slow.result(timeout=30).text.startswith("aaab")


def test_a_stream_may_end_while_its_mask_is_made(held) -> None:  # type: ignore[no-untyped-def]
    with _engine() as engine:
        slow = engine.submit(_request(CONSTRAINTS[0]))
        assert held.begun.wait(30)
        engine.abort(slow.request_id)
        with pytest.raises(RequestAbortedError):
            slow.result(timeout=30)
        held.set()
        assert engine.submit(_request(CONSTRAINTS[0], temperature=0)).result(timeout=30).text


def test_a_fault_of_a_late_mask_ends_its_own_request(held, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def fail(self, row):  # type: ignore[no-untyped-def]
        raise RuntimeError("broken")

    monkeypatch.setattr(Matcher, "fill_mask_in_background", fail)
    with _engine() as engine:
        slow = engine.submit(_request(CONSTRAINTS[0]))
        assert engine.submit(_request(temperature=0)).result(timeout=30).text == "a" * 12
        with pytest.raises(Exception, match="inside the engine"):
            slow.result(timeout=30)


@pytest.mark.parametrize("settings", [{}, {"forced_tokens": False}, {"max_draft_len": 0}])
def test_late_masks_change_no_output(settings, held) -> None:  # type: ignore[no-untyped-def]
    requests = [
        _request(c, prompt=(65, 66, 67 + i), temperature=1.0, seed=i)
        for i in range(3)
        for c in CONSTRAINTS
    ]
    held.set()
    with _engine(**settings) as engine:
        late = [each.result(timeout=60).text for each in [engine.submit(r) for r in requests]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Matcher, "try_mask", _in_time)
        with _engine(**settings) as engine:
            soon = [
                engine.submit(
                    _request(r.constraint, prompt=r.prompt_token_ids, temperature=1.0, seed=i)
                ).result(timeout=60).text
                for i, r in ((r.params.seed, r) for r in requests)
            ]  # fmt: skip
    assert late == soon


def _in_time(self, row, seconds):  # type: ignore[no-untyped-def]
    self.fill_mask(row)
    return True
