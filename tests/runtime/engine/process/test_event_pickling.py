"""Messages between the processes are pickled without loss of any field."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from ramet.runtime.api.events import TextDelta, TokenInfo, TokenLogprob

TOKEN = TokenInfo(7, b"\xff", -0.5, (TokenLogprob(8, b"x", -1.5),), "forced", 1)


@pytest.mark.parametrize("event", [TOKEN, TextDelta("text", (TOKEN,))])
def test_every_field_comes_back(event):
    values = [getattr(event, field.name) for field in dataclasses.fields(event)]
    defaults = [field.default for field in dataclasses.fields(event)]
    assert all(value != default for value, default in zip(values, defaults, strict=True))
    assert pickle.loads(pickle.dumps(event)) == event
