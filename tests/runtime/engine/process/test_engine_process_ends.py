"""An engine's process never keeps its parent from ending, whenever that wants to."""

from __future__ import annotations

import multiprocessing
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from ramet.runtime.api.errors import EngineDeadError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine.process import EngineProcess, client
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_while_it_starts_ends_it_immediately() -> None:
    before = signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            EngineProcess(partial(time.sleep, 600), scripted_tokenizer())  # type: ignore[arg-type]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 60
    names = {process.name for process in multiprocessing.active_children()}
    assert "ramet-engine" not in names


def test_one_that_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_CLOSE_TIMEOUT_S", 0.2)
    engine = EngineProcess(scripted_engine, scripted_tokenizer())
    prompt = tuple(scripted_tokenizer().encode("x"))
    params = SamplingParams(max_tokens=3000, ignore_eos=True)
    stream = engine.submit(Request(prompt_token_ids=prompt, params=params))
    pid = engine.process_id
    assert pid is not None
    next(stream)
    subprocess.run(["kill", "-STOP", str(pid)], check=True)
    engine.close()
    with pytest.raises(EngineDeadError):
        stream.result(timeout=10)


FORGETFUL = """
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

if __name__ == "__main__":
    engine = EngineProcess(scripted_engine, scripted_tokenizer())
    print(engine.vocab_size)
"""


def test_a_program_that_forgets_to_close_it_ends_all_the_same() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORGETFUL], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) > 0


BUSY = """
from functools import partial

from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_engine import scripted_engine
from ramet.runtime.testing.scripted_model import Script
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

if __name__ == "__main__":
    factory = partial(scripted_engine, [Script(["word "], repeat=True)])
    engine = EngineProcess(factory, scripted_tokenizer())
    prompt = tuple(scripted_tokenizer().encode("x"))
    params = SamplingParams(max_tokens=3000, ignore_eos=True)
    streams = [
        engine.submit(Request(prompt_token_ids=prompt, params=params)) for _ in range(8)
    ]
    next(streams[0])
    print("busy", flush=True)
    for stream in streams:
        stream.result()
"""


def test_one_that_is_busy_ends_without_a_word_when_its_parent_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BUSY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "busy\n"
        parent.kill()
        assert parent.communicate(timeout=60) == ("", "")


STARTING = """
import multiprocessing
import threading
import time
from functools import partial

from ramet.runtime.engine.process import EngineProcess
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer

if __name__ == "__main__":
    start = partial(EngineProcess, partial(time.sleep, 600), scripted_tokenizer())
    threading.Thread(target=start, daemon=True).start()
    while not multiprocessing.active_children():
        time.sleep(0.01)
    print("starting", flush=True)
    time.sleep(600)
"""


def test_one_that_starts_ends_with_a_parent_that_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTING], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "starting\n"
        parent.kill()
        # All that has its standard output has ended when that ends.
        assert parent.communicate(timeout=60)[0] == ""
