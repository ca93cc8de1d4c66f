"""Sampling parameters of one step and what is sampled by them, as plain arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
Float32Array = npt.NDArray[np.float32]

Ints = TypeVar("Ints")
Floats = TypeVar("Floats")


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


class SampleResult(NamedTuple, Generic[Ints, Floats]):
    """The tokens of S rows; K is the largest ``num_logprobs``, at least 0. Arrays or tensors.

    ``logprobs`` are taken after masks, biases and penalties and before temperature and filters;
    they are NaN in rows that asked for none.
    """

    token_ids: Ints  # int32 [S]; -1: no token has a finite logit
    logprobs: Floats  # float32 [S]
    top_token_ids: Ints  # int32 [S, K]; likeliest first, -1 after a row's own number
    top_logprobs: Floats  # float32 [S, K]; -inf after a row's own number


SampledTokens: TypeAlias = SampleResult[Int32Array, Float32Array]


def without_logprobs(token_ids: Int32Array) -> SampledTokens:
    """The result of rows that want no log-probabilities."""
    num_rows = len(token_ids)
    logprobs = np.empty(num_rows, np.float32)
    logprobs.fill(np.nan)
    return SampleResult(
        token_ids,
        logprobs,
        np.empty((num_rows, 0), np.int32),
        np.empty((num_rows, 0), np.float32),
    )
