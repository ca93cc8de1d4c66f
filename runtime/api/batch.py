"""The contract between scheduler, model runner and sampler: the plain arrays of one step.

The runner and the sampler know nothing of requests; the scheduler knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Float32Array = npt.NDArray[np.float32]

Meanwhile = Callable[[], None]


@dataclass(slots=True)
class SamplingRows:
    """Per-row sampling arrays, S rows: row s picks a token from ``logits[s]``.

    ``masks`` holds packed token bitmasks, int32[M, ceil(vocab_size / 32)]; bit i of word j allows
    token 32*j+i. ``mask_rows[s]`` is a row of ``masks``, or -1 for none. Sparse per-row data is in
    compressed rows: row s owns entries ``starts[s]:starts[s+1]``.
    """

    temperature: Float32Array  # [S]; 0 is greedy
    top_p: Float32Array  # [S]
    top_k: Int32Array  # [S]; 0 keeps all
    min_p: Float32Array  # [S]
    presence_penalty: Float32Array  # [S]
    frequency_penalty: Float32Array  # [S]
    repetition_penalty: Float32Array  # [S]
    seeds: UInt64Array  # [S]
    positions: Int64Array  # [S]; position of the token to draw, the generator's counter
    targets: Int32Array  # [S]; -1: draw; else take this token, only its log-probability is wanted
    mask_rows: Int32Array  # [S]
    masks: Int32Array  # [M, W]
    num_logprobs: Int32Array  # [S]; -1: none, k: the chosen token's and the k likeliest
    bias_starts: Int32Array  # [S + 1]
    bias_token_ids: Int32Array
    bias_values: Float32Array
    seen_starts: Int32Array  # [S + 1]; tokens with penalties
    seen_token_ids: Int32Array
    seen_output_counts: Int32Array  # times generated; 0: only the prompt has it

    @property
    def num_rows(self) -> int:
        return len(self.temperature)

    @property
    def all_greedy(self) -> bool:
        """Whether each row takes the likeliest token that its mask allows, and nothing else is
        wanted of it."""
        return not (
            np.count_nonzero(self.temperature)
            or np.count_nonzero(self.num_logprobs >= 0)
            or np.count_nonzero(self.targets >= 0)
            or len(self.bias_token_ids)
            or len(self.seen_token_ids)
        )

    @classmethod
    def greedy(cls, num_rows: int) -> SamplingRows:
        """Rows that take their likeliest tokens, without masks."""
        none, nowhere = np.zeros(num_rows, np.float32), np.full(num_rows, -1, np.int32)
        starts, no_ids = np.zeros(num_rows + 1, np.int32), np.empty(0, np.int32)
        return cls(
            temperature=none,
            top_p=none + 1,
            top_k=nowhere + 1,
            min_p=none,
            presence_penalty=none,
            frequency_penalty=none,
            repetition_penalty=none + 1,
            seeds=np.zeros(num_rows, np.uint64),
            positions=np.zeros(num_rows, np.int64),
            targets=nowhere,
            mask_rows=nowhere,
            masks=np.empty((0, 0), np.int32),
            num_logprobs=nowhere,
            bias_starts=starts,
            bias_token_ids=no_ids,
            bias_values=np.empty(0, np.float32),
            seen_starts=starts,
            seen_token_ids=no_ids,
            seen_output_counts=no_ids,
        )

    def first_greedy(self, num_rows: int, mask_rows: Int32Array, masks: Int32Array) -> SamplingRows:
        """The first ``num_rows`` of ``greedy`` rows, as views, with masks."""
        return SamplingRows(
            temperature=self.temperature[:num_rows],
            top_p=self.top_p[:num_rows],
            top_k=self.top_k[:num_rows],
            min_p=self.min_p[:num_rows],
            presence_penalty=self.presence_penalty[:num_rows],
            frequency_penalty=self.frequency_penalty[:num_rows],
            repetition_penalty=self.repetition_penalty[:num_rows],
            seeds=self.seeds[:num_rows],
            positions=self.positions[:num_rows],
            targets=self.targets[:num_rows],
            mask_rows=mask_rows,
            masks=masks,
            num_logprobs=self.num_logprobs[:num_rows],
            bias_starts=self.bias_starts[: num_rows + 1],
            bias_token_ids=self.bias_token_ids,
            bias_values=self.bias_values,
            seen_starts=self.seen_starts[: num_rows + 1],
            seen_token_ids=self.seen_token_ids,
            seen_output_counts=self.seen_output_counts,
        )


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


@dataclass(slots=True)
class StepResult:
    """What the sampler chose, a row a wanted logit.

    ``top_token_ids`` and ``top_logprobs`` have K columns, K the largest ``num_logprobs`` of the
    batch (0 when none is wanted), likeliest first, -1 and -inf after a row's own number.
    """

    token_ids: Int32Array  # [L]; -1: the row's mask allows no token
    logprobs: Float32Array  # [L]; of the chosen token, before temperature and filters, after masks
    top_token_ids: Int32Array  # [L, K]
    top_logprobs: Float32Array  # [L, K]
    hidden_states: Float32Array | None = None  # [H, hidden_size]; None: none was wanted

    @classmethod
    def of_tokens(cls, token_ids: Int32Array) -> StepResult:
        """Tokens of rows that want no log-probabilities."""
        num_rows = len(token_ids)
        logprobs = np.empty(num_rows, np.float32)
        logprobs.fill(np.nan)
        return cls(
            token_ids,
            logprobs,
            np.empty((num_rows, 0), np.int32),
            np.empty((num_rows, 0), np.float32),
        )


class ModelRunner(Protocol):
    """Runs a model over one batch. The page storage is the runner's own."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_context_len(self) -> int: ...

    @property
    def page_size(self) -> int: ...

    @property
    def num_pages(self) -> int: ...

    def run(self, batch: Batch, meanwhile: Meanwhile | None = None) -> Float32Array:
        """Does the batch's page copies, writes keys and values, returns logits [L, vocab_size].

        Calls ``meanwhile`` once, on the calling thread, while the step is being computed elsewhere
        where that can be: what it writes, the masks, is not read before it has returned.
        """
        ...

    def close(self) -> None:
        """Ends the runner's threads and frees its storage."""
        ...


@runtime_checkable
class SamplingRunner(ModelRunner, Protocol):
    """A runner that can choose tokens where its logits are, so that they needn't be moved."""

    def run_and_sample(self, batch: Batch, meanwhile: Meanwhile | None = None) -> StepResult:
        """``run``, and the choice of a token for each of the logits by ``batch.sampling``."""
        ...


@runtime_checkable
class EmbeddingRunner(ModelRunner, Protocol):
    """A runner that can show what its head reads, for a batch's ``hidden_tokens``."""

    def hidden_states(self) -> Float32Array:
        """After a step: the final norm's output for its ``hidden_tokens``, [H, hidden_size]."""
        ...


@runtime_checkable
class PreparingRunner(ModelRunner, Protocol):
    """A runner that can do ahead of steps what they would have to do."""

    def prepare_ahead(self) -> bool:
        """About a millisecond of such work, not during a step; False if none is left."""
        ...


@runtime_checkable
class PageStorage(Protocol):
    """A runner whose pages can be taken out and put back, to outlive it."""

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
