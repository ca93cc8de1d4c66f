"""What the torch runner's forward pass reads of one step, as tensors; and as fixed buffers that a
captured graph reads again and again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ramet.kernels.attention_plan import AttentionPlan, Int32Array
from ramet.kernels.paged_attention import AttentionInputs
from ramet.runtime.batch import Batch
from ramet.runtime.model.device_arrays import upload


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A step of T tokens of which L want logits; ``attention`` holds positions and page tables."""

    token_ids: torch.Tensor  # int32[T]
    slots: torch.Tensor  # int32[T]; page * page_size + offset of each token's key; -1: none
    logit_tokens: torch.Tensor  # int32[L]
    attention: AttentionInputs


def key_slots(batch: Batch, page_size: int) -> Int32Array:
    """Where each token's key and value go: ``page * page_size + offset``, int32[T]."""
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
    """Buffers of a step of any rows, filled anew for every replay; all tokens' logits are wanted.

    What a step leaves empty does nothing: tokens without a slot write no key, items without tokens
    and merge tokens of -1 are skipped.
    """

    def __init__(self, capacity: Capacity, device: torch.device) -> None:
        self.capacity = capacity
        self._device = device

        def zeros(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        num_tokens = capacity.num_tokens
        self.inputs = StepInputs(
            token_ids=zeros(num_tokens),
            slots=zeros(num_tokens).fill_(-1),
            logit_tokens=torch.arange(num_tokens, dtype=torch.int32, device=device),
            attention=AttentionInputs(
                items=zeros(capacity.num_narrow + capacity.num_wide, 6),
                num_narrow=capacity.num_narrow,
                num_slots=capacity.num_slots,
                merge_tokens=zeros(num_tokens).fill_(-1),
                merge_starts=zeros(num_tokens + 1),
                merge_slots=zeros(capacity.num_slots),
                page_tables=zeros(num_tokens, capacity.table_width),
                positions=zeros(num_tokens),
            ),
        )

    def load(self, batch: Batch, plan: AttentionPlan, page_size: int) -> None:
        """Fills the buffers with a step that fits them."""
        sources = upload(_arrays(batch, plan, page_size), self._device)
        inputs, attention = self.inputs, self.inputs.attention
        num_tokens, (num_rows, table_width) = batch.num_tokens, batch.page_tables.shape
        inputs.token_ids[:num_tokens] = sources["token_ids"]
        inputs.slots[:num_tokens] = sources["slots"]
        inputs.slots[num_tokens:] = -1
        attention.positions[:num_tokens] = sources["positions"]
        attention.page_tables[:num_rows, :table_width] = sources["page_tables"]
        num_narrow, start = plan.num_narrow, self.capacity.num_narrow
        num_wide = plan.num_items - num_narrow
        attention.items.zero_()
        attention.items[:num_narrow] = sources["items"][:num_narrow]
        attention.items[start : start + num_wide] = sources["items"][num_narrow:]
        num_merged = len(plan.merge_tokens)
        attention.merge_tokens[:num_merged] = sources["merge_tokens"]
        attention.merge_tokens[num_merged:] = -1
        attention.merge_starts[: num_merged + 1] = sources["merge_starts"]
        attention.merge_slots[: plan.num_slots] = sources["merge_slots"]
