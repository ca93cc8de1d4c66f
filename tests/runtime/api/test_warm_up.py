"""While an installation's first start compiles what constraints need, plain requests go on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ramet.grammars import Choice
from ramet.runtime.api import warm_up as first_start
from ramet.runtime.api.errors import EngineDeadError, RametError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.testing.scripted_engine import scripted_engine


@pytest.fixture
def compiling(monkeypatch):
    """A process that is said to compile, until its standard input is closed."""
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        monkeypatch.setattr(first_start, "is_compiled", lambda *_: False)
        monkeypatch.setattr(first_start, "compile_in_background", lambda *_: process)
        yield process
        process.kill()


def constrained(engine):
    prompt = tuple(engine.tokenizer.encode("?"))
    params = SamplingParams(max_tokens=8, temperature=0)
    return Request(prompt_token_ids=prompt, params=params, constraint=Choice(("yes", "no")))


def test_constraints_wait_and_others_do_not(compiling):
    with scripted_engine() as engine:
        engine.warm_up()
        stream = engine.submit(constrained(engine))
        assert len(engine.generate("hello", SamplingParams(max_tokens=3)).token_ids) == 3
        assert compiling.poll() is None
        assert engine.stats().num_compiling == 1
        compiling.stdin.close()
        assert stream.result().text in ("yes", "no")


def test_closing_the_engine_ends_the_compiling(compiling):
    engine = scripted_engine()
    engine.warm_up()
    stream = engine.submit(constrained(engine))
    engine.close()
    assert compiling.poll() is not None
    with pytest.raises(EngineDeadError):
        stream.result()


def test_a_process_that_fails_is_made_up_for(compiling):
    compiling.kill()
    with scripted_engine() as engine:
        engine.warm_up()
        assert engine.submit(constrained(engine)).result().text in ("yes", "no")


def test_all_code_can_be_compiled_ahead(compiling, monkeypatch):
    counts = iter([(3, 5), (4, 5), (5, 5)])

    def count(*_):
        found = next(counts)
        if found[0] == 4:
            compiling.kill()
            compiling.wait()
        return found

    monkeypatch.setattr(first_start, "count_compiled", count)
    reports = []
    first_start.compile_ahead(lambda *report: reports.append(report))
    assert reports == [(3, 5), (4, 5), (5, 5)]


def test_code_that_cannot_be_compiled_ahead_is_an_error(monkeypatch):
    monkeypatch.setattr(first_start, "compile_in_background", lambda *_: None)
    monkeypatch.setattr(first_start, "count_compiled", lambda *_: (3, 5))
    with pytest.raises(RametError, match="2 of 5 functions"):
        first_start.compile_ahead(lambda *_: None)
