"""A step's masks are written while its forward pass runs, not before it, and not after it."""

from __future__ import annotations

from ramet.grammars.constraints import Choice
from ramet.kernels.sampling.reference import sample_reference
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import Request
from ramet.runtime.engine import Engine
from ramet.runtime.testing.scripted_model import ScriptedModel


class PoisoningModel(ScriptedModel):
    """Forbids every token when a forward pass begins, and looks what is allowed when it ends."""

    num_masked = 0

    def run(self, batch, overlap=None):
        masks, wanted = batch.sampling.masks, batch.sampling.mask_rows
        masks[:] = 0
        result = super().run(batch, overlap)
        written = masks[wanted[wanted >= 0]]
        assert written.any(axis=1).all()
        self.num_masked += len(written)
        return result


def test_masks_are_written_during_the_forward_pass(tokenizer):
    model = PoisoningModel(tokenizer, (), sample=sample_reference)
    requests = [
        Request(prompt_token_ids=(1, 2, number), params=SamplingParams(max_tokens=9, seed=number),
                constraint=constraint)
        for number, constraint in enumerate((Choice(("yes", "no")), None, Choice(("a", "b", "c"))))
    ]  # fmt: skip
    with Engine(model, tokenizer) as engine:
        streams = [engine.submit(request) for request in requests]
        texts = [stream.result().text for stream in streams]
        assert engine.error is None
    assert texts[0] in ("yes", "no")
    assert texts[2] in ("a", "b", "c")
    assert model.num_masked >= 2
