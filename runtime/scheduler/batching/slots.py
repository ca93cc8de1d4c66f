"""Per-sequence numbers of the running sequences, as arrays that a step gathers rows from.

Building a batch from 64 Python objects, a dozen attributes each, would cost more than some of the
kernels do. A sequence's parameters are written once, to its slot, when it is admitted; a step
takes rows of whole arrays.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ramet.runtime.api.batch import SamplingRows
from ramet.runtime.api.params import SAMPLING_PARAMS
from ramet.runtime.scheduler.sequence.sequence import Sequence

_FLOAT_PARAMS = tuple(name for name, spec in SAMPLING_PARAMS.items() if spec.kind == "number")
_EMPTY_I32 = np.empty(0, np.int32)
_EMPTY_F32 = np.empty(0, np.float32)


class Slots:
    """Sampling parameters and page tables by slot.

    ``page_tables`` is int32[num_slots, max_pages]; a running sequence's row holds its
    ``num_pages`` pages in order, then -1.
    """

    def __init__(self, num_slots: int, max_pages: int) -> None:
        self.page_tables = np.full((num_slots, max_pages), -1, np.int32)
        self._free = list(range(num_slots - 1, -1, -1))
        self._floats = np.zeros((len(_FLOAT_PARAMS), num_slots), np.float32)
        # top_k, num_logprobs, num_prompt_logprobs
        self._integers = np.zeros((3, num_slots), np.int32)
        self._seeds = np.zeros(num_slots, np.uint64)
        self._biases: dict[int, tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]] = {}
        self._seen: dict[int, SeenTokens] = {}
        self._not_greedy: set[int] = set()  # than those that just take their likeliest token
        self._greedy = SamplingRows.greedy(64)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def assign(self, sequence: Sequence) -> None:
        """Gives a sequence a slot and writes its parameters there; changes nothing if it can't."""
        slot, params = self._free[-1], sequence.params
        self._floats[:, slot] = [getattr(params, name) for name in _FLOAT_PARAMS]
        self._integers[:, slot] = (
            max(params.top_k, 0),
            -1 if params.logprobs is None else params.logprobs,
            -1 if params.prompt_logprobs is None else params.prompt_logprobs,
        )
        self._seeds[slot] = sequence.seed
        self._biases.pop(slot, None)
        self._seen.pop(slot, None)
        self._write_biases(sequence, slot)
        if params.presence_penalty or params.frequency_penalty or params.repetition_penalty != 1:
            self._seen[slot] = SeenTokens(sequence)
        if (
            params.temperature != 0
            or params.logprobs is not None
            or params.prompt_logprobs is not None
            or slot in self._biases
            or slot in self._seen
        ):
            self._not_greedy.add(slot)
        sequence.slot = self._free.pop()

    def release(self, sequence: Sequence) -> None:
        """Takes a slot back; its page table must have been emptied."""
        slot = sequence.slot
        self._biases.pop(slot, None)
        self._seen.pop(slot, None)
        self._not_greedy.discard(slot)
        self._free.append(slot)

    def _write_biases(self, sequence: Sequence, slot: int) -> None:
        """Writes what is added to the logits of a sequence's next token."""
        biases = dict(sequence.params.logit_bias)
        for token_id, value in sequence.landing_biases.items():
            biases[token_id] = biases.get(token_id, 0.0) + value
        self._biases.pop(slot, None)
        if biases:
            ids = np.fromiter(biases.keys(), np.int32)
            self._biases[slot] = ids, np.fromiter(biases.values(), np.float32)
            self._not_greedy.add(slot)

    def counts_tokens(self, sequence: Sequence) -> bool:
        """Whether the sequence's logits depend on its own tokens, by penalties or its landing."""
        return sequence.slot in self._seen or sequence.request.landing is not None

    def note_tokens(self, sequence: Sequence) -> None:
        """Takes in the tokens that a sequence has got since the last call."""
        seen = self._seen.get(sequence.slot)
        if seen is not None:
            seen.update(sequence)
        if sequence.request.landing is not None:
            self._write_biases(sequence, sequence.slot)

    def gather(
        self,
        slot_ids: list[int],
        positions: list[int],
        target_ids: list[int],
        mask_ids: list[int],
        masks: npt.NDArray[np.int32],
        *,
        any_scored: bool,
    ) -> SamplingRows:
        """The sampling rows of a step, one a wanted logit; ``any_scored``: some has a target.

        If all sequences are greedy, rows have neither seed nor position.
        """
        mask_rows = np.array(mask_ids, np.int32)
        if not self._not_greedy:
            num_rows = len(slot_ids)
            if num_rows > self._greedy.num_rows:
                self._greedy = SamplingRows.greedy(2 * num_rows)
            return self._greedy.first_greedy(num_rows, mask_rows, masks)
        slots, targets = np.array(slot_ids, np.intp), np.array(target_ids, np.int32)
        floats = dict(zip(_FLOAT_PARAMS, np.take(self._floats, slots, axis=1), strict=True))
        top_k, num_logprobs, num_prompt_logprobs = np.take(self._integers, slots, axis=1)
        bias_starts, seen_starts = np.zeros((2, len(slots) + 1), np.int32)
        rows = SamplingRows(
            **floats,
            top_k=top_k,
            seeds=self._seeds[slots],
            positions=np.array(positions, np.int64),
            targets=targets,
            mask_rows=mask_rows,
            masks=masks,
            num_logprobs=num_logprobs,
            bias_starts=bias_starts,
            bias_token_ids=_EMPTY_I32,
            bias_values=_EMPTY_F32,
            seen_starts=seen_starts,
            seen_token_ids=_EMPTY_I32,
            seen_output_counts=_EMPTY_I32,
        )
        if not (any_scored or self._biases or self._seen):
            return rows
        scored = targets >= 0
        if any_scored:
            # A prompt's log-probabilities are the model's own.
            num_logprobs[scored] = num_prompt_logprobs[scored]
            rows.presence_penalty[scored] = rows.frequency_penalty[scored] = 0
            rows.repetition_penalty[scored] = 1
        if self._biases and len(slots):
            self._gather_biases(slots, scored, rows)
        if self._seen and len(slots):
            self._gather_seen(slots, scored, rows)
        return rows

    def _gather_biases(
        self, slots: npt.NDArray[np.intp], scored: npt.NDArray[np.bool_], rows: SamplingRows
    ) -> None:
        none = (_EMPTY_I32, _EMPTY_F32)
        parts = [
            none if is_scored else self._biases.get(slot, none)
            for slot, is_scored in zip(slots.tolist(), scored.tolist(), strict=True)
        ]
        np.cumsum([len(ids) for ids, _ in parts], out=rows.bias_starts[1:])
        rows.bias_token_ids = np.concatenate([ids for ids, _ in parts])
        rows.bias_values = np.concatenate([values for _, values in parts])

    def _gather_seen(
        self, slots: npt.NDArray[np.intp], scored: npt.NDArray[np.bool_], rows: SamplingRows
    ) -> None:
        none = (_EMPTY_I32, _EMPTY_I32)
        parts = [
            self._seen[slot].arrays() if slot in self._seen and not is_scored else none
            for slot, is_scored in zip(slots.tolist(), scored.tolist(), strict=True)
        ]
        np.cumsum([len(ids) for ids, _ in parts], out=rows.seen_starts[1:])
        rows.seen_token_ids = np.concatenate([ids for ids, _ in parts])
        rows.seen_output_counts = np.concatenate([counts for _, counts in parts])


class SeenTokens:
    """The distinct tokens of a sequence with how often each was generated, kept up to date."""

    def __init__(self, sequence: Sequence) -> None:
        prompt = np.unique(sequence.token_ids[: sequence.num_prompt])
        self._index = {token_id: i for i, token_id in enumerate(prompt.tolist())}
        self._ids = np.empty(len(prompt) + 64, np.int32)
        self._ids[: len(prompt)] = prompt
        self._counts = np.zeros(len(prompt) + 64, np.int32)
        self._num_counted = sequence.num_prompt
        self.update(sequence)

    def update(self, sequence: Sequence) -> None:
        """Counts the tokens generated since the last call."""
        for token_id in sequence.token_ids[self._num_counted : sequence.num_tokens].tolist():
            index = self._index.setdefault(token_id, len(self._index))
            if index == len(self._ids):
                self._ids = np.concatenate([self._ids, np.empty_like(self._ids)])
                self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._ids[index] = token_id
            self._counts[index] += 1
        self._num_counted = sequence.num_tokens

    def arrays(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """Token ids, and times generated (0: only the prompt has it)."""
        size = len(self._index)
        return self._ids[:size], self._counts[:size]
