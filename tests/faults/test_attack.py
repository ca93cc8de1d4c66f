"""The parts of ``make attack``: bodies by seed, answers that are compared, a clock that moves."""

from __future__ import annotations

import importlib
import json
import random
import sys
from pathlib import Path

import pytest

ATTACK = Path(__file__).parents[2] / "benchmarks" / "attack"


@pytest.fixture(scope="module")
def attack():
    """The attack's modules by name."""
    sys.path.insert(0, str(ATTACK))
    names = ("honest", "hostile", "clock", "server", "clients", "faults")
    try:
        yield {name: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(ATTACK))
        for name in names:
            sys.modules.pop(name, None)


def test_bodies_repeat_by_their_seed(attack):
    hostile = attack["hostile"].hostile
    first, second = ([hostile(random.Random(i)) for i in range(300)] for _ in range(2))
    assert first == second
    assert len({raw for _, raw in first}) > 200


def test_every_bomb_is_json_of_a_body_s_size(attack):
    for bomb in attack["hostile"].BOMBS:
        for seed in range(40):
            path, body = bomb(random.Random(seed))
            assert path.startswith("/v1/")
            assert len(json.dumps(body)) < 4 << 20


def test_an_answer_is_its_texts_and_needs_one_end(attack):
    answer_of, error = attack["honest"].answer_of, attack["honest"].StreamError
    chunk = {"choices": [{"index": 1, "text": "a"}]}
    event = f"data: {json.dumps(chunk)}\n\n"
    done = "data: [DONE]\n\n"
    path, body = "/v1/completions", {"stream": True}
    assert json.loads(answer_of(path, body, f"{event}{event}{done}".encode())) == {"1": "aa"}
    for wrong in (event, f"{event}{done}{event}", f"{event}{done}{done}"):
        with pytest.raises(ValueError, match="end"):
            answer_of(path, body, wrong.encode())
    with pytest.raises(error) as caught:
        answer_of(path, body, f'{event}data: {{"error": {{"code": "engine_dead"}}}}\n\n'.encode())
    assert caught.value.code == "engine_dead"
    for name in ("a", "b"):
        whole = {"id": name, "choices": [{"index": 0, "text": name}]}
        assert json.loads(answer_of(path, {}, json.dumps(whole).encode())) == [name]


def test_the_clock_moves_by_what_its_file_says(attack, tmp_path, monkeypatch):
    import time

    monkeypatch.setattr(time, "time", time.time)  # and back in the end
    monkeypatch.setattr(time, "time_ns", time.time_ns)
    true_time = time.time
    path = tmp_path / "clock"
    attack["clock"].set_clock(path, 0.0)
    attack["clock"].install_clock(path)
    for offset in (1e8, -1e8, 0.0):
        attack["clock"].set_clock(path, offset)
        assert time.time() - true_time() == pytest.approx(offset, abs=60)
        assert time.time_ns() / 1e9 - true_time() == pytest.approx(offset, abs=60)
