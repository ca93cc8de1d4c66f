"""Attention by radix node: which keys each group of tokens reads, as plain arrays.

Rows of a batch that share leading pages sit next to each other, so every node of the tree of
shared prefixes covers a contiguous range of rows, and so of tokens. ``build_plan`` walks that tree
and emits *items*::

    page tables              tree                    items (keys x tokens)
    r0: 4 7 9                [4 7] r0..r2            pages 4 7   x tokens of r0 r1 r2
    r1: 4 7 2 5                ├── [9]   r0          page  9     x tokens of r0
    r2: 4 7 2 8                └── [2]   r1..r2      page  2     x tokens of r1 r2
    r3: 6                           ├── [5] r1       page  5     x tokens of r1
                                    └── [8] r2       page  8     x tokens of r2
                             [6] r3                  page  6     x tokens of r3

An item is one tile of tokens that reads one range of keys once, whichever rows the tokens belong
to. A token that several items cover gets one partial result from each; they are merged by
log-sum-exp in the order of their positions (Dao et al. 2022, Milakov and Gimelshein 2018; Hydragen,
Juravsky et al. 2024, is the special case of one level). A node whose grouping would cost more than
it saves, by ``AttentionCosts``, is left to its children, down to single rows: with grouping never
worth its price the plan is plain paged attention, run by the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from ramet.jit import open_jit
from ramet.kernels.attention.costs import AttentionCosts, AttentionShape

Int32Array = npt.NDArray[np.int32]

TABLE_ROW, KEY_START, KEY_END, TOKEN_START, TOKEN_END, SLOT = range(6)
"""Columns of ``AttentionPlan.items``."""

Grouping = Literal["auto", "always", "never"]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The work of one attention call; the same for every layer with the same window.

    Attributes:
        items: int32[I, 6]: page table row, first key position, end key position, first token, end
            token, first slot. The token ``t`` of an item writes slot ``slot + t - first token``,
            or straight to the output where ``slot`` is -1 (no other item covers its tokens).
            The first ``num_narrow`` fit the narrow tile. Longer ones come first in each part.
        num_slots: partial results in all.
        merge_tokens: int32[X], tokens with partial results, ascending.
        merge_starts, merge_slots: token ``merge_tokens[x]`` has the slots
            ``merge_slots[merge_starts[x]:merge_starts[x + 1]]``, in the order of their keys.
        num_keys_read: keys loaded, over all items; the plan's memory traffic.
    """

    items: Int32Array
    num_narrow: int
    num_slots: int
    merge_tokens: Int32Array
    merge_starts: Int32Array
    merge_slots: Int32Array
    num_keys_read: int

    @property
    def num_items(self) -> int:
        return len(self.items)


class _Params(NamedTuple):
    page_size: int
    quantum: int  # pages; nodes end on its multiples
    window: int
    grouping: int  # 0 never, 1 always, 2 by cost
    chunk_len: int  # keys; > 0: split on the multiples of it
    split_len: int  # keys; > 0: split longer items into equal parts of about this
    narrow_tokens: int
    wide_tokens: int
    block_keys: int
    group_size: int
    key_bytes: float  # of one key and its value, one head
    flops: float  # of one query and one key, one head
    partial_bytes: float  # written and read, of one token's partial result, one key/value head
    per_byte: float
    per_flop: float
    per_item: float


@open_jit()
def _common_pages(page_tables, num_full_pages, quantum):  # type: ignore[no-untyped-def]
    """Leading full pages that each row shares with the next, in whole quanta: [R]; the last 0."""
    num_rows = len(num_full_pages)
    common = np.zeros(num_rows, np.int64)
    for row in range(num_rows - 1):
        limit = min(num_full_pages[row], num_full_pages[row + 1])
        count = 0
        while count < limit and page_tables[row, count] == page_tables[row + 1, count]:
            count += 1
        common[row] = count // quantum * quantum
    return common


@njit
def _cost(p, num_tokens, num_keys):  # type: ignore[no-untyped-def]
    """Seconds, for one key/value head, in which ``num_tokens`` tokens see ``num_keys`` keys."""
    total = 0.0
    while num_tokens > 0:
        queries = (min(num_tokens, p.wide_tokens) * p.group_size + 15) // 16 * 16
        total += num_keys * max(p.key_bytes * p.per_byte, p.flops * queries * p.per_flop)
        num_tokens -= p.wide_tokens
    return total


@njit
def _grouping_pays(p, common, row_starts, first, end, depth, num_keys, merged):  # type: ignore[no-untyped-def]
    """Whether reading ``num_keys`` keys once for rows ``first:end`` beats once for each child.

    Children are the ranges between the rows where no more than ``depth`` pages are common. Their
    own items are there either way and only grow, so new items and new partial results are the
    price of reading once: one a token, and the token's own one too if it was not ``merged`` with
    an outer node's anyway.
    """
    num_tokens = row_starts[end] - row_starts[first]
    once = (
        _cost(p, num_tokens, num_keys)
        + (num_tokens + p.wide_tokens - 1) // p.wide_tokens * p.per_item
        + num_tokens * (1 if merged else 2) * p.partial_bytes * p.per_byte
    )
    apart = 0.0
    start = first
    for row in range(first, end):
        if row == end - 1 or common[row] == depth:
            apart += _cost(p, row_starts[row + 1] - row_starts[start], num_keys)
            start = row + 1
    return once < apart


@njit
def _emit(p, row, first_key, end_key, tokens, positions, items, num_items):  # type: ignore[no-untyped-def]
    """Adds the items of ``tokens`` over ``first_key:end_key``; returns the new number of items.

    With more items than ``items`` has room for, they are only counted.
    """
    start, last = tokens
    while start < last:
        tile = p.narrow_tokens if last - start <= p.narrow_tokens else p.wide_tokens
        stop = min(last, start + tile)
        lowest = positions[start]
        highest = positions[start]
        for token in range(start + 1, stop):
            lowest = min(lowest, positions[token])
            highest = max(highest, positions[token])
        low = first_key
        high = min(end_key, highest + 1)
        if p.window > 0:
            low = max(low, (lowest - p.window + 1) // p.block_keys * p.block_keys)
        step = high - low
        if p.split_len > 0 and step > p.split_len:
            parts = (step + p.split_len // 2) // p.split_len
            step = (step + parts - 1) // parts
            step = (step + p.block_keys - 1) // p.block_keys * p.block_keys
        while low < high:
            if p.chunk_len > 0:
                end = min(high, (low // p.chunk_len + 1) * p.chunk_len)
            else:
                end = min(high, low + step)
            if num_items < len(items):
                items[num_items, TABLE_ROW] = row
                items[num_items, KEY_START] = low
                items[num_items, KEY_END] = end
                items[num_items, TOKEN_START] = start
                items[num_items, TOKEN_END] = stop
            num_items += 1
            low = end
        start = stop
    return num_items


@open_jit()
def _walk(p, common, row_starts, context_lens, positions, items):  # type: ignore[no-untyped-def]
    """Emits the tree's items, each node before its children; returns their number."""
    num_rows = len(context_lens)
    num_items = 0
    # A stack entry is a range of rows, and the page from which nothing is emitted for it yet:
    # above its own depth if the nodes over it are left to their children.
    stack = np.zeros((num_rows + 1, 3), np.int64)
    stack[0, 1] = num_rows
    size = 1 if num_rows > 0 else 0
    while size > 0:
        size -= 1
        first, end, pending = stack[size, 0], stack[size, 1], stack[size, 2]
        if end - first == 1:
            num_items = _emit(
                p,
                first,
                pending * p.page_size,
                context_lens[first],
                (row_starts[first], row_starts[first + 1]),
                positions,
                items,
                num_items,
            )
            continue
        depth = common[first]
        for row in range(first + 1, end - 1):
            depth = min(depth, common[row])
        if depth > pending and (
            p.grouping == 1
            or (
                p.grouping == 2
                and _grouping_pays(
                    p,
                    common,
                    row_starts,
                    first,
                    end,
                    depth,
                    (depth - pending) * p.page_size,
                    pending > 0,
                )
            )
        ):
            num_items = _emit(
                p,
                first,
                pending * p.page_size,
                depth * p.page_size,
                (row_starts[first], row_starts[end]),
                positions,
                items,
                num_items,
            )
            pending = depth
        stop = end
        for row in range(end - 1, first - 1, -1):  # the leftmost child ends on top
            if row == first or common[row - 1] == depth:
                stack[size, 0], stack[size, 1], stack[size, 2] = row, stop, pending
                size += 1
                stop = row
    return num_items


@open_jit()
def _assign_slots(items, num_tokens):  # type: ignore[no-untyped-def]
    """Fills the slot column; returns the merge lists and the number of slots."""
    count = np.zeros(num_tokens, np.int32)
    for item in items:
        for token in range(item[TOKEN_START], item[TOKEN_END]):
            count[token] += 1
    num_slots = 0
    for item in items:
        merged = False
        for token in range(item[TOKEN_START], item[TOKEN_END]):
            merged = merged or count[token] > 1
        item[SLOT] = -1
        if merged:
            item[SLOT] = num_slots
            num_slots += item[TOKEN_END] - item[TOKEN_START]
        else:
            for token in range(item[TOKEN_START], item[TOKEN_END]):
                count[token] = 0
    merge_tokens = np.nonzero(count)[0].astype(np.int32)
    merge_starts = np.zeros(len(merge_tokens) + 1, np.int32)
    merge_starts[1:] = np.cumsum(count[merge_tokens])
    cursor = np.zeros(num_tokens, np.int64)
    cursor[merge_tokens] = merge_starts[:-1]
    merge_slots = np.empty(num_slots, np.int32)
    for item in items:
        if item[SLOT] >= 0:
            for token in range(item[TOKEN_START], item[TOKEN_END]):
                merge_slots[cursor[token]] = item[SLOT] + token - item[TOKEN_START]
                cursor[token] += 1
    return merge_tokens, merge_starts, merge_slots, num_slots


def build_plan(
    page_tables: Int32Array,
    context_lens: Int32Array,
    row_starts: Int32Array,
    *,
    page_size: int,
    shape: AttentionShape,
    costs: AttentionCosts,
    window: int = 0,
    grouping: Grouping = "auto",
    chunk_len: int = 0,
) -> AttentionPlan:
    """Plans one step's attention.

    Args:
        page_tables: int32[R, P]; rows with common leading pages must be neighbours.
        context_lens: int32[R]; keys of each row once the step's own are written.
        row_starts: int32[R + 1]; row r owns tokens ``row_starts[r]:row_starts[r + 1]``, the last
            ones of its context.
        page_size: tokens of a page.
        window: each token sees this many keys, itself included; 0: all.
        grouping: by cost, wherever pages are shared, or nowhere.
        chunk_len: > 0 (a multiple of the page size and of the shape's ``block_keys``): items begin
            and end on multiples of it whatever the batch holds, so that no row's arithmetic depends
            on the others; 0: items are split to fill the device.
    """
    if chunk_len % page_size or chunk_len % shape.block_keys:
        raise ValueError(
            f"chunk_len ({chunk_len}) must be a multiple of the page size ({page_size}) "
            f"and of block_keys ({shape.block_keys})"
        )
    row_starts64 = row_starts.astype(np.int64)
    context_lens64 = context_lens.astype(np.int64)
    num_tokens = int(row_starts64[-1])
    row_lens = np.diff(row_starts64)
    positions = np.arange(num_tokens) + np.repeat(context_lens64 - row_starts64[1:], row_lens)
    quantum = chunk_len // page_size if chunk_len else 1
    common = _common_pages(page_tables, context_lens64 // page_size, quantum)
    params = _Params(
        page_size=page_size,
        quantum=quantum,
        window=window,
        grouping={"never": 0, "always": 1, "auto": 2}[grouping],
        chunk_len=chunk_len,
        split_len=0,
        narrow_tokens=shape.narrow_tokens,
        # One tile size, so that a row's products don't depend on how many rows share its tile.
        wide_tokens=shape.narrow_tokens if chunk_len else shape.wide_tokens,
        block_keys=shape.block_keys,
        group_size=shape.group_size,
        key_bytes=2.0 * shape.head_dim * shape.element_bytes,
        flops=4.0 * shape.head_dim,
        partial_bytes=2.0 * shape.group_size * (shape.head_dim + 1) * 4,
        per_byte=costs.per_byte,
        per_flop=costs.per_flop,
        per_item=costs.per_item,
    )
    arguments = (common, row_starts64, context_lens64, positions)
    items = np.empty((4 * len(context_lens) + 64, 6), np.int32)
    items = _collect(params, arguments, items)
    if not chunk_len and len(items):
        lens = items[:, KEY_END] - items[:, KEY_START]
        fair = -(-int(lens.sum()) * shape.num_kv_heads // costs.num_programs)
        # Splitting below a few blocks would spend more on merging than it wins.
        split_len = max(-(-fair // shape.block_keys), 4) * shape.block_keys
        if int(lens.max()) > split_len:
            items = _collect(params._replace(split_len=split_len), arguments, items)
    merge_tokens, merge_starts, merge_slots, num_slots = _assign_slots(items, num_tokens)
    lens = items[:, KEY_END] - items[:, KEY_START]
    narrow = items[:, TOKEN_END] - items[:, TOKEN_START] <= shape.narrow_tokens
    order = np.lexsort((-lens, ~narrow))
    return AttentionPlan(
        items=np.ascontiguousarray(items[order]),
        num_narrow=int(narrow.sum()),
        num_slots=int(num_slots),
        merge_tokens=merge_tokens,
        merge_starts=merge_starts,
        merge_slots=merge_slots,
        num_keys_read=int(lens.sum()),
    )


def _collect(params: _Params, arguments: tuple[object, ...], items: Int32Array) -> Int32Array:
    """The items of a walk, in a buffer grown until they fit."""
    num_items = _walk(params, *arguments, items)
    if num_items > len(items):
        items = np.empty((num_items, 6), np.int32)
        _walk(params, *arguments, items)
    return items[:num_items]
