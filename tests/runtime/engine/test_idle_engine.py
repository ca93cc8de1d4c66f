"""An idle engine has its runner prepare for what comes, and serves a request all the same."""

from __future__ import annotations

import threading

from ramet.kernels.sampling.reference import sample_reference
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.testing.scripted_model import ScriptedModel


class PreparingModel(ScriptedModel):
    """Has three pieces of work to do ahead of steps."""

    pieces = 3

    def __init__(self, *args, **options) -> None:
        super().__init__(*args, **options)
        self.done = threading.Event()
        self.in_step = False

    def run(self, batch, overlap=None):
        self.in_step = True
        try:
            return super().run(batch, overlap)
        finally:
            self.in_step = False

    def prepare_ahead(self) -> bool:
        assert not self.in_step
        self.pieces -= self.pieces > 0
        if not self.pieces:
            self.done.set()
        return self.pieces > 0


def test_an_idle_engine_prepares_until_nothing_is_left(tokenizer):
    model = PreparingModel(tokenizer, (), sample=sample_reference)
    with Engine(model, tokenizer) as engine:
        assert model.done.wait(10)
        request = Request(prompt_token_ids=(1, 2, 3), params=SamplingParams(max_tokens=3))
        assert engine.submit(request).result()
        assert engine.error is None
