"""The interface between scheduler and model runner: the plain arrays of one step.

The runner knows nothing of requests; the scheduler knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from ramet.kernels.sampling.rows import (
    Float32Array,
    Int32Array,
    SampledTokens,
    SamplingRows,
)

__all__ = [
    "Batch",
    "Float32Array",
    "Int32Array",
    "ModelRunner",
    "Overlap",
    "PageStorage",
    "SampledTokens",
    "SamplingRows",
    "StepResult",
]

Overlap = Callable[[], None]
"""Host work that a runner calls once while a step is computed elsewhere, where that can be."""


@dataclass(slots=True)
class Batch:
    """One step: T tokens over R rows, one row a sequence; L logits are wanted.

    Row r owns tokens ``row_starts[r]:row_starts[r+1]`` and, once the step is done, has keys and
    values for ``context_lens[r]`` tokens, in the pages that ``page_tables[r]`` names in order.
    Rows are sorted so that those with common leading pages are neighbours. Decode, chunked prefill
    and verification rows mix freely.
    """

    token_ids: Int32Array  # [T]
    positions: Int32Array  # [T]
    row_starts: Int32Array  # [R + 1]
    context_lens: Int32Array  # [R]
    page_tables: Int32Array  # [R, P]; -1 after a row's last page
    page_copies: Int32Array  # [C, 3]: source page, destination page, tokens; before all else
    logit_tokens: Int32Array  # [L]; ascending indices into token_ids
    sampling: SamplingRows  # L rows, in the order of logit_tokens
    # [H]; ascending indices into token_ids, whose hidden states are wanted
    hidden_tokens: Int32Array = field(default_factory=lambda: np.empty(0, np.int32))

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_rows(self) -> int:
        return len(self.context_lens)


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step's tokens, one a wanted logit, and the hidden states that were wanted."""

    sampled: SampledTokens
    hidden_states: Float32Array | None = None  # [H, hidden_size], after the final norm


class PageStorage(Protocol):
    """Pages that can be read and written, to outlive their runner."""

    @property
    def page_format(self) -> str:
        """Names how a page's bytes are laid out; another layout has another name."""
        ...

    def read_page(self, page: int) -> bytes:
        """A page's keys and values, as the runner stores them; of one length for all pages."""
        ...

    def write_page(self, page: int, data: bytes) -> None:
        """Puts back what ``read_page`` of an equal runner gave; ValueError if it can't be that."""
        ...


class ModelRunner(Protocol):
    """Runs a model over batches and samples its tokens. The page storage is the runner's own."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_context_len(self) -> int: ...

    @property
    def page_size(self) -> int: ...

    @property
    def num_pages(self) -> int: ...

    @property
    def description(self) -> str:
        """The model, and what it runs on, in one line."""
        ...

    @property
    def exact_in_any_batch(self) -> bool:
        """Whether a row's logits have the same bits in any batch: drafts then change no output."""
        ...

    @property
    def has_hidden_states(self) -> bool:
        """Whether ``Batch.hidden_tokens`` may be asked for."""
        ...

    @property
    def page_storage(self) -> PageStorage | None:
        """Access to the pages; None: they can't be read."""
        ...

    def run(self, batch: Batch, overlap: Overlap | None = None) -> StepResult:
        """Copies pages, computes the batch's tokens, and samples by ``batch.sampling``.

        Calls ``overlap`` once, on the calling thread, before it reads ``batch.sampling.masks``.
        """
        ...

    def prepare_ahead(self) -> bool:
        """Does about a millisecond of what steps would do later; False if nothing is left."""
        ...

    def close(self) -> None:
        """Ends the runner's threads and frees its storage."""
        ...
