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


class Code:
    """Code whose compilation is done once it was asked about so often."""

    def __init__(self, num_looks: float) -> None:
        self._num_looks = num_looks

    @property
    def is_compiled(self) -> bool:
        self._num_looks -= 1
        return self._num_looks < 0


@pytest.mark.parametrize("num_looks", [2, float("inf")])
def test_code_is_compiled_ahead_or_an_error(num_looks, monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1)"])
    monkeypatch.setattr(first_start, "compile_in_background", lambda *_: process)
    monkeypatch.setattr(first_start, "compiled_of", lambda *_: iter([Code(0), Code(num_looks)]))
    reports = []
    if num_looks == 2:
        first_start.compile_ahead(lambda *report: reports.append(report))
        assert reports[-1] == (2, 2)
    else:
        with pytest.raises(RametError, match="1 of 2 functions"):
            first_start.compile_ahead(lambda *report: reports.append(report))
    assert reports[0] == (1, 2)
