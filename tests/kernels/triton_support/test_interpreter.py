"""The corrected interpreter's bfloat16 is torch's, bit for bit."""

from __future__ import annotations

import numpy as np
import torch

from ramet.kernels.triton_support.interpreter import bfloat16_values, round_to_bfloat16


def test_all_bfloat16_values_are_torchs():
    bits = np.arange(2**16, dtype=np.uint16)
    expected = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(bfloat16_values(bits), expected)


def test_rounding_is_torchs_for_numbers_ties_and_infinities():
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    bits = (np.arange(2**16, dtype=np.uint32)[:, None] << 16 | low).ravel()
    values = bits.view(np.float32)
    numbers = ~np.isnan(values)
    expected = torch.from_numpy(values.copy()).bfloat16().view(torch.int16).numpy().view(np.uint16)
    ours = round_to_bfloat16(values)
    np.testing.assert_array_equal(ours[numbers], expected[numbers])
    assert np.isnan(bfloat16_values(ours[~numbers])).all()
