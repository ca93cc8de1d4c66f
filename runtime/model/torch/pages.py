"""Copies of pages of keys and values on the device of the torch runner."""

from __future__ import annotations

import numpy as np
import torch

from ramet.runtime.api.batch import Int32Array


def copy_pages(pages: torch.Tensor, copies: Int32Array) -> None:
    """Copies whole pages, which is at least the tokens asked for, in order.

    Args:
        pages: [num_layers, 2, num_pages, ...], on any device.
        copies: int32[n, 3]: source, target, number of tokens.
    """
    if len(copies) == 0:
        return
    sources, targets = copies[:, 0], copies[:, 1]
    if len(np.intersect1d(sources, targets)) or len(np.unique(targets)) < len(targets):
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            pages[:, :, target] = pages[:, :, source]
        return
    index = torch.from_numpy(copies.astype(np.int64)).to(pages.device)
    pages[:, :, index[:, 1]] = pages[:, :, index[:, 0]]
