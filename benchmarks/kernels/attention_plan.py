"""Counts from plans what attention by radix node saves; needs no GPU.

    python benchmarks/kernels/attention_plan.py [sm_80 | sm_90 | gfx942 | ...]

For decode steps of a model with 32 heads over 8 key/value heads of 128 components, this divides the
bytes that plain paged attention moves (keys, values and partial results) by what the plan moves,
with the tiles and the cost coefficients of a GPU. ``ideal`` is a plan that reads each key once and
has no partial results.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch

from ramet.kernels.attention.attention import attention_shape
from ramet.kernels.attention.costs import attention_costs
from ramet.kernels.attention.plan import AttentionPlan, build_plan

HEADS, KV_HEADS, HEAD_DIM, PAGE_SIZE = 32, 8, 128, 16
KEY_BYTES = 2 * KV_HEADS * HEAD_DIM * 2
PARTIAL_BYTES = 2 * HEADS * (HEAD_DIM + 1) * 4  # written and read, float32

Level = tuple[int, int]
"""Children of each node of the level above, and the tokens of each."""

STEPS: dict[str, list[Level]] = {
    "64 rows that share nothing": [(64, 4096)],
    "64 rows that share a page": [(1, 16), (64, 4096)],
    "64 rows that share 8,192 keys": [(1, 8192), (64, 128)],
    "8 agents of 8 rows; 2,048 keys of all, 2,048 of each agent": [(1, 2048), (8, 2048), (8, 256)],
    "a binary tree down to 64 rows, 512 keys a node": [(1, 512), *[(2, 512)] * 6],
    "256 rows; 1,024 keys of all, 512 of each four": [(1, 1024), (64, 512), (4, 256)],
}


def tree_tables(levels: list[Level]) -> tuple[np.ndarray, np.ndarray]:
    """Page tables and context lengths of the rows at a tree's leaves."""
    tables, num_pages = [np.zeros(0, np.int32)], 0
    for branches, tokens in levels:
        size = -(-tokens // PAGE_SIZE)
        grown = []
        for table in tables:
            for _ in range(branches):
                grown.append(np.r_[table, num_pages : num_pages + size])
                num_pages += size
        tables = grown
    page_tables = np.array(tables, np.int32)
    return page_tables, np.full(len(tables), page_tables.shape[1] * PAGE_SIZE, np.int32)


def moved_bytes(plan: AttentionPlan) -> int:
    return plan.num_keys_read * KEY_BYTES + plan.num_slots * PARTIAL_BYTES


def savings(levels: list[Level], arch: str) -> tuple[float, float]:
    """Plain paged attention's bytes by the plan's, and by the ideal."""
    page_tables, context = tree_tables(levels)
    plain, planned = (
        build_plan(
            page_tables,
            context,
            np.arange(len(context) + 1, dtype=np.int32),
            page_size=PAGE_SIZE,
            shape=attention_shape(HEADS, KV_HEADS, HEAD_DIM, torch.bfloat16, arch),
            costs=attention_costs(arch),
            grouping=grouping,
        )
        for grouping in ("never", "auto")
    )
    ideal = (int(page_tables.max()) + 1) * PAGE_SIZE * KEY_BYTES
    return moved_bytes(plain) / moved_bytes(planned), moved_bytes(plain) / ideal


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("arch", nargs="?", default="sm_90")
    arch = parser.parse_args().arch
    print(f"| a decode step, planned for {arch} | times fewer bytes | ideal |\n|---|---|---|")
    for name, levels in STEPS.items():
        planned, ideal = savings(levels, arch)
        print(f"| {name} | {planned:.2f} | {ideal:.2f} |")


if __name__ == "__main__":
    main()
