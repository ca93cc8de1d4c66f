"""Random batches of rows with shared prefixes, a dense oracle of attention over them, and a target
to compile for that is not this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from hypothesis import strategies as st


def normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")


@dataclass(frozen=True)
class RowTree:
    """Rows of a step, sorted so that those with common leading pages are neighbours."""

    page_size: int
    page_tables: np.ndarray
    context_lens: np.ndarray
    row_starts: np.ndarray
    num_pages: int

    @property
    def num_tokens(self) -> int:
        return int(self.row_starts[-1])

    @property
    def positions(self) -> np.ndarray:
        ends = zip(self.context_lens, np.diff(self.row_starts), strict=True)
        return np.concatenate([np.arange(end - new, end) for end, new in ends]).astype(np.int32)

    def pages(self, num_kv_heads: int, head_dim: int, seed: int) -> tuple[torch.Tensor, ...]:
        """Keys and values, normal; pages that no row names are not-a-number."""
        generator = torch.Generator("cpu").manual_seed(seed)
        shape = (self.num_pages + 1, num_kv_heads, self.page_size, head_dim)
        k, v = (normal(shape, generator) for _ in "kv")
        k[self.num_pages] = v[self.num_pages] = torch.nan
        return k, v

    def queries(self, num_heads: int, head_dim: int, seed: int) -> torch.Tensor:
        generator = torch.Generator("cpu").manual_seed(seed + 1)
        shape = (self.num_tokens, num_heads, head_dim)
        return normal(shape, generator)


def make_row_tree(page_size: int, rows: list[tuple[int, int, int, int]]) -> RowTree:
    """Rows from ``(copied row, pages copied, own tokens of context, new tokens)``.

    A row copies full leading pages of an earlier one, so any tree of shared prefixes can arise.
    """
    tables: list[list[int]] = []
    lens: list[tuple[int, int]] = []
    num_pages = 0
    for index, (source, share, own, new) in enumerate(rows):
        table: list[int] = []
        if index:
            source %= index
            # Only pages that are full before the step's own tokens are shared.
            full = (lens[source][0] - lens[source][1]) // page_size
            table = tables[source][: min(share, full)]
        context_len = len(table) * page_size + own + new
        needed = -(-context_len // page_size) - len(table)
        table = [*table, *range(num_pages, num_pages + needed)]
        num_pages += needed
        tables.append(table)
        lens.append((context_len, new))
    order = sorted(range(len(rows)), key=lambda index: tables[index])
    page_tables = np.full((len(rows), max(map(len, tables))), -1, np.int32)
    for row, index in enumerate(order):
        page_tables[row, : len(tables[index])] = tables[index]
    return RowTree(
        page_size,
        page_tables,
        np.array([lens[index][0] for index in order], np.int32),
        np.cumsum([0, *(lens[index][1] for index in order)]).astype(np.int32),
        num_pages,
    )


def _row_trees(max_rows: int = 8, max_new: int = 12) -> st.SearchStrategy[RowTree]:
    row = st.tuples(
        st.integers(0, max_rows), st.integers(0, 6), st.integers(0, 40), st.integers(1, max_new)
    )
    return st.builds(
        make_row_tree, st.sampled_from([1, 3, 16]), st.lists(row, min_size=1, max_size=max_rows)
    )


def _dense_attention(
    tree: RowTree,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    scale: float,
    soft_cap: float = 0.0,
    window: int = 0,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Softmax attention, one row at a time, over its gathered keys: knows nothing of plans."""
    q, k, v = (tensor.double().cpu() for tensor in (q, k, v))
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for row, context_len in enumerate(tree.context_lens):
        first, end = tree.row_starts[row], tree.row_starts[row + 1]
        key = torch.arange(int(context_len), device="cpu")
        page = torch.from_numpy(tree.page_tables[row])[key // tree.page_size].long()
        keys = k[page, :, key % tree.page_size].repeat_interleave(group, 1)
        values = v[page, :, key % tree.page_size].repeat_interleave(group, 1)
        score = torch.einsum("thd,nhd->htn", q[first:end], keys) * scale
        if soft_cap:
            score = soft_cap * torch.tanh(score / soft_cap)
        position = torch.from_numpy(tree.positions[first:end])[:, None]
        hidden = key > position
        if window:
            hidden |= key <= position - window
        score = score.masked_fill(hidden, -torch.inf)
        if sinks is not None:
            column = sinks.double()[:, None, None].expand(-1, score.shape[1], 1)
            score = torch.cat([score, column], -1)
        weight = torch.softmax(score, -1)[..., : int(context_len)]
        out[first:end] = torch.einsum("htn,nhd->thd", weight, values)
    return out


@pytest.fixture(scope="session")
def row_trees() -> Callable[..., st.SearchStrategy[RowTree]]:
    return _row_trees


@pytest.fixture(scope="session")
def row_tree() -> Callable[..., RowTree]:
    return make_row_tree


@pytest.fixture(scope="session")
def dense_attention() -> Callable[..., torch.Tensor]:
    return _dense_attention


@pytest.fixture(scope="session")
def aarch64() -> llvm.Target:
    """What compiles for AArch64, on any machine."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    try:
        return llvm.Target.from_triple("aarch64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM knows nothing of AArch64")
