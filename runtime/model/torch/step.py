"""What the torch runner's forward pass reads of one step, as tensors; and as fixed buffers that a
captured graph reads again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ramet.kernels.attention.inputs import AttentionInputs
from ramet.kernels.attention.plan import AttentionPlan, Int32Array
from ramet.runtime.api.batch import Batch
from ramet.runtime.model.torch.device_arrays import pack, unpack, upload


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step of T tokens of which L want logits; ``attention`` holds positions and page tables."""

    token_ids: torch.Tensor  # int32[T]
    slots: torch.Tensor  # int32[T]; page * page_size + offset of each token's key; -1: none
    logit_tokens: torch.Tensor  # int32[L]
    attention: AttentionInputs


def key_slots(batch: Batch, page_size: int) -> Int32Array:
    """The slot of each token's key and value: ``page * page_size + offset``, int32[T]."""
    rows = np.repeat(np.arange(batch.num_rows), np.diff(batch.row_starts))
    pages = batch.page_tables[rows, batch.positions // page_size]
    return (pages * page_size + batch.positions % page_size).astype(np.int32)


def step_inputs(
    batch: Batch, plan: AttentionPlan, page_size: int, device: torch.device
) -> StepInputs:
    """A step's own tensors, of just its size."""
    tensors = upload(_arrays(batch, plan, page_size), device)
    return StepInputs(
        token_ids=tensors["token_ids"],
        slots=tensors["slots"],
        logit_tokens=tensors["logit_tokens"],
        attention=AttentionInputs(
            items=tensors["items"],
            num_narrow=plan.num_narrow,
            num_slots=plan.num_slots,
            merge_tokens=tensors["merge_tokens"],
            merge_starts=tensors["merge_starts"],
            merge_slots=tensors["merge_slots"],
            page_tables=tensors["page_tables"],
            positions=tensors["positions"],
        ),
    )


def _arrays(batch: Batch, plan: AttentionPlan, page_size: int) -> dict[str, Int32Array]:
    return {
        "token_ids": batch.token_ids,
        "positions": batch.positions,
        "slots": key_slots(batch, page_size),
        "logit_tokens": batch.logit_tokens,
        "page_tables": batch.page_tables,
        "items": plan.items,
        "merge_tokens": plan.merge_tokens,
        "merge_starts": plan.merge_starts,
        "merge_slots": plan.merge_slots,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """The sizes of a graph's buffers: a step that exceeds any of them is run without a graph."""

    num_tokens: int
    table_width: int
    num_narrow: int
    num_wide: int
    num_slots: int

    def fits(self, batch: Batch, plan: AttentionPlan) -> bool:
        """Whether the step's arrays fit the buffers; a step has no more rows than tokens."""
        return (
            batch.num_tokens <= self.num_tokens
            and batch.page_tables.shape[1] <= self.table_width
            and plan.num_narrow <= self.num_narrow
            and plan.num_items - plan.num_narrow <= self.num_wide
            and plan.num_slots <= self.num_slots
        )


class FixedInputs:
    """Buffers of a step of any rows, refilled for every replay; all tokens' logits are wanted.

    What a step leaves empty does nothing: tokens without a slot write no key, items without tokens
    and merge tokens of -1 are skipped.
    """

    def __init__(self, capacity: Capacity, device: torch.device) -> None:
        self.capacity = capacity
        empty = self._padded({})
        self._buffer = pack(empty, pin_memory=False).to(device)
        tensors = unpack(self._buffer, empty)
        self._page_tables = torch.zeros(
            capacity.num_tokens, capacity.table_width, dtype=torch.int32, device=device
        )
        self.inputs = StepInputs(
            token_ids=tensors["token_ids"],
            slots=tensors["slots"],
            logit_tokens=torch.arange(capacity.num_tokens, dtype=torch.int32, device=device),
            attention=AttentionInputs(
                items=tensors["items"],
                num_narrow=capacity.num_narrow,
                num_slots=capacity.num_slots,
                merge_tokens=tensors["merge_tokens"],
                merge_starts=tensors["merge_starts"],
                merge_slots=tensors["merge_slots"],
                page_tables=self._page_tables,
                positions=tensors["positions"],
            ),
        )

    def load(self, batch: Batch, plan: AttentionPlan, page_size: int) -> None:
        """Fills the buffers with a step that fits them: one copy to the device, two on it."""
        step = _arrays(batch, plan, page_size)
        narrow, wide = np.split(step["items"], [plan.num_narrow])
        items = np.zeros((self.capacity.num_narrow + self.capacity.num_wide, 6), np.int32)
        items[: len(narrow)] = narrow
        items[self.capacity.num_narrow :][: len(wide)] = wide
        arrays = self._padded(step | {"items": items})
        arrays["page_tables"] = batch.page_tables
        device = self._buffer.device
        moved = pack(arrays, pin_memory=device.type == "cuda").to(device, non_blocking=True)
        self._buffer.copy_(moved[: len(self._buffer)])
        num_rows, table_width = batch.page_tables.shape
        self._page_tables[:num_rows, :table_width] = unpack(moved, arrays)["page_tables"]

    def _padded(self, step: dict[str, Int32Array]) -> dict[str, Int32Array]:
        """A step's arrays in the buffers' sizes; those that aren't given hold nothing."""
        capacity = self.capacity
        sizes = {
            "token_ids": (capacity.num_tokens, 0),
            "positions": (capacity.num_tokens, 0),
            "slots": (capacity.num_tokens, -1),
            "merge_tokens": (capacity.num_tokens, -1),
            "merge_starts": (capacity.num_tokens + 1, 0),
            "merge_slots": (capacity.num_slots, 0),
        }
        padded = {name: np.full(size, fill, np.int32) for name, (size, fill) in sizes.items()}
        for name in sizes.keys() & step.keys():
            padded[name][: len(step[name])] = step[name]
        num_items = capacity.num_narrow + capacity.num_wide
        padded["items"] = step.get("items", np.zeros((num_items, 6), np.int32))
        return padded
