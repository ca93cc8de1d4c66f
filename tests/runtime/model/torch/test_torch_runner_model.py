"""The torch runner on the bundled model: the reference's own words, from weights left packed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ramet.kernels.triton_support.dispatch import interpreting
from ramet.runtime.api.errors import ModelLoadError
from ramet.runtime.model.load import open_model
from ramet.runtime.model.torch.runner import TorchOptions, TorchRunner
from ramet.runtime.testing.reference_model import ReferenceModel

pytestmark = pytest.mark.model


@pytest.mark.skipif(interpreting(), reason="a model of this size takes the interpreter hours")
def test_greedy_tokens_are_the_references():
    try:
        file = open_model("smollm2")
    except ModelLoadError as error:
        pytest.skip(str(error))
    reference = ReferenceModel(file)
    prompt = [504, 3575, 282, 4649, 314, 260, 1185, 30, 657]
    expected = reference.greedy(prompt, 5)
    options = TorchOptions(
        device="cpu", dtype=torch.float32, page_size=16, num_pages=4, packed_weights=True
    )
    runner = TorchRunner.load(file, options)
    text, done, step = list(prompt), 0, 4
    while len(text) < len(prompt) + 5:
        logits = runner.logits(one_row(text, done, min(done + step, len(text))))
        done = min(done + step, len(text))
        if done == len(text):
            text.append(int(logits[0].argmax()))
    assert text[len(prompt) :] == expected
    np.testing.assert_allclose(logits[0], reference.logits(text[:-1])[-1], atol=2e-3)


def one_row(text, start, end):
    from ramet.runtime.api.batch import Batch

    def ints(*values):
        return np.array(values, np.int32)

    return Batch(
        token_ids=ints(*text[start:end]),
        positions=np.arange(start, end, dtype=np.int32),
        row_starts=ints(0, end - start),
        context_lens=ints(end),
        page_tables=ints(2, 0)[None],
        page_copies=np.zeros((0, 3), np.int32),
        logit_tokens=ints(end - start - 1),
        sampling=None,
    )
