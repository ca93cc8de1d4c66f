"""A plan and the arrays that it indexes, as tensors of one device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ramet.kernels.attention.plan import AttentionPlan, Int32Array


@dataclass(frozen=True, slots=True)
class AttentionInputs:
    """A plan and the arrays that it indexes. All int32; see ``AttentionPlan``.

    For a captured graph the tensors may be longer than the plan: surplus items have no tokens
    (``TOKEN_START == TOKEN_END``) and surplus merge tokens are -1.
    """

    items: torch.Tensor  # [I, 6]
    num_narrow: int
    num_slots: int
    merge_tokens: torch.Tensor  # [X]
    merge_starts: torch.Tensor  # [X + 1]
    merge_slots: torch.Tensor
    page_tables: torch.Tensor  # [R, P]
    positions: torch.Tensor  # [T]

    @classmethod
    def from_plan(
        cls,
        plan: AttentionPlan,
        page_tables: Int32Array,
        positions: Int32Array,
        device: torch.device | str = "cpu",
    ) -> AttentionInputs:
        def tensor(array: Int32Array) -> torch.Tensor:
            return torch.from_numpy(array).to(device, non_blocking=True)

        return cls(
            items=tensor(plan.items),
            num_narrow=plan.num_narrow,
            num_slots=plan.num_slots,
            merge_tokens=tensor(plan.merge_tokens),
            merge_starts=tensor(plan.merge_starts),
            merge_slots=tensor(plan.merge_slots),
            page_tables=tensor(page_tables),
            positions=tensor(positions),
        )
