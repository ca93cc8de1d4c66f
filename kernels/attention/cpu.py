"""Attention over pages on the CPU, each page read once for all tokens that share it.

A token's context is cut into chunks of ``CHUNK`` positions, wherever its pages lie. A chunk's
weights are relative to the largest score up to its end, its sums are one chain each, and they are
added to the chunks' before, which decay as the largest score rises (``attention_softmax``). So one
token's arithmetic depends on its position alone: not on how its prompt was cut into steps, on which
rows share its step, or on what was cached.

Work is a tile of neighbouring tokens by one key/value head. In each chunk the tile's tokens fall
into runs that name the same pages; a run's queries (times the query heads that share the key/value
head) meet the run's keys as a matrix product. Decode rows below one radix node, rows of one prompt
and verification rows are all runs, at every level of the tree, since each chunk groups again.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numba import njit, types

from ramet.jit import open_jit
from ramet.kernels.attention import cpu_runs as runs
from ramet.kernels.attention import cpu_softmax as softmax
from ramet.kernels.attention import cpu_tiles as tiles
from ramet.kernels.attention.cpu_int8 import INT8, unpack_chunk
from ramet.kernels.attention.cpu_softmax import LANES
from ramet.kernels.attention.cpu_tiles import CHUNK, MASKED
from ramet.kernels.cpu_support.compiled_op import Op
from ramet.kernels.cpu_support.features import AttentionPath, best_attention_path
from ramet.kernels.cpu_support.memory import (
    bits_to_f32,
    load_f32,
    load_i32,
    load_i64,
    next_task,
    store_f32,
    store_i64,
)
from ramet.kernels.cpu_support.quantise import store_quantised
from ramet.kernels.cpu_support.step import (
    NUM_THREADS,
    NUM_TILES,
    PAGE_TABLE_STRIDE,
    PAGE_TABLES,
    POSITIONS,
    SCRATCH,
    SCRATCH_BYTES,
    TILES,
    TOKEN_ROWS,
)

_CHUNK_VECTORS = CHUNK // 16
_MAX_TILE_ROWS = 48
_TILE_OVERHEAD = 1 / 40
"""A tile's measured fixed cost, as a fraction of the largest tile's tokens."""

# Operands; the results are also quantised if the operands of ``quantise`` ask for it.
# ``INT8`` of ``cpu_int8`` is 17.
Q, Q_STRIDE = 2, 3  # float32 rows that begin with all heads' queries, scaled
OUT, OUT_STRIDE = 4, 5  # float32 [tokens, heads * head_dim]
KEYS, VALUES, PAGE_SIZE = 6, 7, 8  # one layer's pages
NUM_KV_HEADS, GROUP_SIZE, HEAD_DIM = 10, 11, 12
WINDOW = 13  # a token sees this many positions, itself included; 0: all
HEAD_BYTES, PAGE_BYTES = 9, 15  # from one head, or page, to the next
SINKS = 16  # float32[heads]: scores without a value; or 0
SOFT_CAP = 14  # float64 bits: scores become cap * tanh(score / cap); 0: none


def max_tile_tokens(group_size: int) -> int:
    """Most tokens of a tile, for ``group_size`` query heads a key/value head."""
    return max(1, _MAX_TILE_ROWS // group_size)


def scratch_bytes(group_size: int, head_dim: int, *, int8: bool = False) -> int:
    """Bytes of one thread's scratch: see ``_layout``. ``int8``: keys and values are."""
    rows = max_tile_tokens(group_size) * group_size
    size = 8 * 4 * _CHUNK_VECTORS + 4 * rows * (CHUNK + 2 * head_dim + LANES + 2) + 2 * 4 * LANES
    size += 64 + 4 * CHUNK * head_dim * int8
    return -(-size // 4096) * 4096


@njit(inline="always")
def _layout(scratch, num_rows, head_dim):  # type: ignore[no-untyped-def]
    """Addresses in a thread's scratch: key and value addresses (this chunk's, then the next one's),
    queries, scores, sums of values, sums of weights (16 a row), largest scores, decays, and
    unpacked keys and values."""
    keys = scratch
    values = keys + 8 * 2 * _CHUNK_VECTORS
    queries = values + 8 * 2 * _CHUNK_VECTORS
    scores = queries + 4 * num_rows * head_dim
    totals = scores + 4 * num_rows * CHUNK
    sums = totals + 4 * num_rows * head_dim
    maxima = sums + 4 * num_rows * LANES
    decays = maxima + 4 * (num_rows + LANES)
    room = (decays + 4 * (num_rows + LANES) + 63) // 64 * 64
    return keys, values, queries, scores, totals, sums, maxima, decays, room


@njit
def _same_pages(tables, stride, row, other, first_page, last_page):  # type: ignore[no-untyped-def]
    if row == other:
        return True
    a, b = tables + 4 * row * stride, tables + 4 * other * stride
    page = first_page
    while page <= last_page and load_i32(a, page) == load_i32(b, page):
        page += 1
    return page > last_page


@njit
def _fill_addresses(stage, step, row, head, first, count, last, keys, values):  # type: ignore[no-untyped-def]
    """Addresses of a row's keys and values, for 16 tokens each: ``count`` from vector ``first`` on,
    none beyond ``last``, which is repeated."""
    head_dim = load_i64(stage, HEAD_DIM)
    page_size = load_i64(stage, PAGE_SIZE)
    page_vectors = page_size // 16
    table = load_i64(step, PAGE_TABLES) + 4 * row * load_i64(step, PAGE_TABLE_STRIDE)
    index, inner = first // page_vectors, first % page_vectors
    head_at = head * load_i64(stage, HEAD_BYTES)
    keys_at, values_at = load_i64(stage, KEYS) + head_at, load_i64(stage, VALUES) + head_at
    page_bytes = load_i64(stage, PAGE_BYTES)
    page = load_i32(table, index) * page_bytes
    for v in range(count):
        store_i64(keys, v, keys_at + page + inner * 64)
        store_i64(values, v, values_at + page + inner * 32 * head_dim)
        if first + v < last:
            inner += 1
            if inner == page_vectors:
                index, inner = index + 1, 0
                page = load_i32(table, index) * page_bytes


@njit
def _fill_upcoming(stage, step, row, head, chunk, last, following, keys, values):  # type: ignore[no-untyped-def]
    """Addresses of what is needed after a run's chunk: the row's next chunk, or the first of the
    following task."""
    first = (chunk + 1) * _CHUNK_VECTORS
    num_kv_heads = load_i64(stage, NUM_KV_HEADS)
    num_tiles = load_i64(step, NUM_TILES)
    if first > last and following < num_tiles * num_kv_heads:
        token = load_i32(load_i64(step, TILES), 2 * (num_tiles - 1 - following // num_kv_heads))
        position = load_i32(load_i64(step, POSITIONS), token)
        row = load_i32(load_i64(step, TOKEN_ROWS), token)
        head = following % num_kv_heads
        window = load_i64(stage, WINDOW)
        seen = max(0, position - window + 1) if window > 0 else 0
        first, last = seen // CHUNK * _CHUNK_VECTORS, position // 16
    _fill_addresses(stage, step, row, head, first, _CHUNK_VECTORS, last, keys, values)


@njit
def _hide_unseen(step, scores, run, stop, group_size, base, num_vectors, window):  # type: ignore[no-untyped-def]
    """Masks what the tokens of a run can't see of ``num_vectors`` vectors from ``base`` on."""
    for token in range(run, stop):
        end = load_i32(load_i64(step, POSITIONS), token) + 1 - base
        first = end - window if window > 0 else 0
        if first > 0 or end < 16 * num_vectors:
            begin = 0 if first > 0 else end // 16  # the first vector to change
            row = scores + 4 * (token - run) * group_size * CHUNK + 64 * begin
            for _ in range(group_size):
                softmax.mask_row(row, first - 16 * begin, end - 16 * begin, num_vectors - begin)
                row += 4 * CHUNK


@njit
def _run_end(step, run, end, base, page_size):  # type: ignore[no-untyped-def]
    """The end of the run that begins at token ``run``, and the most of the chunk that it sees."""
    positions = load_i64(step, POSITIONS)
    token_rows = load_i64(step, TOKEN_ROWS)
    tables = load_i64(step, PAGE_TABLES)
    stride = load_i64(step, PAGE_TABLE_STRIDE)
    row = load_i32(token_rows, run)
    visible = load_i32(positions, run) + 1 - base
    stop = run + 1
    while stop < end:
        more = load_i32(positions, stop) + 1 - base
        last = base + min(CHUNK, max(visible, more)) - 1
        other = load_i32(token_rows, stop)
        if more <= 0 or not _same_pages(
            tables, stride, row, other, base // page_size, last // page_size
        ):
            break
        visible = max(visible, more)
        stop += 1
    return stop, min(CHUNK, visible)


@cache
def attend_op(path: AttentionPath) -> Op:
    """Attention of every tile and key/value head."""
    load_queries, size = tiles.load_queries(path), tiles.item_bytes(path)
    run_scores, run_weights, run_values = runs.run_arithmetic(path)

    def attend_tiles(stage: int, step: int, counter: int, thread: int) -> None:
        num_kv_heads = load_i64(stage, NUM_KV_HEADS)
        group_size = load_i64(stage, GROUP_SIZE)
        head_dim = load_i64(stage, HEAD_DIM)
        page_size = load_i64(stage, PAGE_SIZE)
        window = load_i64(stage, WINDOW)
        cap = bits_to_f32(load_i64(stage, SOFT_CAP))
        positions = load_i64(step, POSITIONS)
        num_tiles = load_i64(step, NUM_TILES)
        num_tasks = num_tiles * num_kv_heads
        # Where there are few tasks, one that is taken ahead would be missing elsewhere.
        ahead = num_tasks >= 3 * load_i64(step, NUM_THREADS)
        max_rows = max(1, _MAX_TILE_ROWS // group_size) * group_size
        int8 = load_i64(stage, INT8) != 0
        pair_stride = 64 if int8 else 4 * page_size
        keys, values, queries, scores, totals, sums, maxima, decays, room = _layout(
            load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES), max_rows, head_dim
        )
        task = next_task(counter)
        while task < num_tasks:
            following = next_task(counter) if ahead else num_tasks
            # Later tiles of a prompt see more: they go first, so that threads end together.
            tile = num_tiles - 1 - task // num_kv_heads
            head = task % num_kv_heads
            begin = load_i32(load_i64(step, TILES), 2 * tile)
            end = load_i32(load_i64(step, TILES), 2 * tile + 1)
            first_seen, last_seen = load_i32(positions, begin), 0
            for token in range(begin, end):
                q = load_i64(stage, Q) + token * load_i64(stage, Q_STRIDE)
                q += 4 * head * group_size * head_dim
                target = queries + size * (token - begin) * group_size * head_dim
                load_queries(q, group_size * head_dim, target)
                position = load_i32(positions, token)
                first_seen, last_seen = min(first_seen, position), max(last_seen, position)
            num_rows = (end - begin) * group_size
            for i in range(num_rows * head_dim):
                store_f32(totals, i, types.float32(0))
            for i in range(num_rows * LANES):
                store_f32(sums, i, types.float32(0))
            for r in range(num_rows):
                store_f32(maxima, r, types.float32(MASKED))
            first_chunk = max(0, first_seen - window + 1) // CHUNK if window > 0 else 0
            for chunk in range(first_chunk, last_seen // CHUNK + 1):
                base = chunk * CHUNK
                run = begin
                while run < end:
                    last = load_i32(positions, run) // 16
                    if last * 16 + 15 < base:  # this token's context ends before the chunk
                        run += 1
                        continue
                    stop, visible = _run_end(step, run, end, base, page_size)
                    row = load_i32(load_i64(step, TOKEN_ROWS), run)
                    num_vectors = (visible + 15) // 16
                    padded = (num_vectors + 3) // 4 * 4
                    first = base // 16
                    beyond = 8 * _CHUNK_VECTORS
                    if int8:
                        unpack_chunk(stage, step, row, head, first, num_vectors, padded,
                                     keys, values, room)  # fmt: skip
                        for v in range(_CHUNK_VECTORS):  # nothing is prefetched
                            store_i64(keys + beyond, v, room)
                            store_i64(values + beyond, v, room)
                    else:
                        _fill_addresses(stage, step, row, head, first, padded,
                                        first + num_vectors - 1, keys, values)  # fmt: skip
                        _fill_upcoming(stage, step, row, head, chunk, last, following,
                                       keys + beyond, values + beyond)  # fmt: skip
                    r0 = (run - begin) * group_size
                    count = (stop - run) * group_size
                    run_at = scores + 4 * r0 * CHUNK
                    run_scores(keys, queries + size * r0 * head_dim, run_at, count,
                                num_vectors, pair_stride, head_dim)  # fmt: skip
                    if cap > 0:
                        for r in range(count):
                            softmax.cap_row(run_at + 4 * r * CHUNK, num_vectors, cap)
                    _hide_unseen(step, run_at, run, stop, group_size, base,
                                 (num_vectors + 1) // 2 * 2, window)  # fmt: skip
                    run_weights(run_at, maxima + 4 * r0, decays + 4 * r0, sums + 64 * r0, count,
                                num_vectors)  # fmt: skip
                    run_values(values, run_at, decays + 4 * r0, totals + 4 * r0 * head_dim, count,
                               num_vectors, head_dim)  # fmt: skip
                    run = stop
            sinks = load_i64(stage, SINKS)
            if sinks != 0:
                for row in range(num_rows):
                    sink = load_f32(sinks, head * group_size + row % group_size)
                    softmax.add_sink(sums + 64 * row, load_f32(maxima, row), sink)
            r = 0
            for token in range(begin, end):
                column = head * group_size * head_dim
                out = load_i64(stage, OUT) + token * load_i64(stage, OUT_STRIDE) + 4 * column
                for h in range(group_size):
                    softmax.finish_row(totals + 4 * r * head_dim, sums + 64 * r, head_dim,
                                       out + 4 * h * head_dim)  # fmt: skip
                    r += 1
                store_quantised(stage, out, token, column // 32, group_size * head_dim // 32)
            task = following if ahead else next_task(counter)

    return Op(f"attend_tiles_{path}", attend_tiles)


def likely_ops() -> list[Op]:
    """What models usually need of this module on this CPU."""
    return [attend_op(best_attention_path())]


@njit
def _cut(token_rows, positions, page_tables, page_size, max_tokens, grouping, tile_bounds):  # type: ignore[no-untyped-def]
    """``cut_tiles`` into the largest tiles."""
    num_tiles = 0
    chunk_pages = (CHUNK + page_size - 1) // page_size
    for token in range(len(token_rows)):
        row, before = token_rows[token], token_rows[token - 1]
        joins = token > 0 and token - tile_bounds[num_tiles - 1, 0] < max_tokens
        if joins and row != before:
            seen = min(positions[token - 1], positions[token])
            joins = grouping and seen >= chunk_pages * page_size
            for page in range(chunk_pages if joins else 0):
                joins = joins and page_tables[row, page] == page_tables[before, page]
        if not joins:
            tile_bounds[num_tiles, 0] = token
            num_tiles += 1
        tile_bounds[num_tiles - 1, 1] = token + 1
    return num_tiles


@njit
def _span(tile_bounds, num_tiles, num_kv_heads, num_threads, overhead):  # type: ignore[no-untyped-def]
    """How long the tiles' tasks take when a thread that is free takes the next, in tokens."""
    loads = np.zeros(num_threads)
    for tile in range(num_tiles - 1, -1, -1):
        for _ in range(num_kv_heads):
            loads[loads.argmin()] += tile_bounds[tile, 1] - tile_bounds[tile, 0] + overhead
    return loads.max()


@open_jit(
    "int64(int32[::1], int32[::1], int32[:,::1], int64, int64, boolean, int64, int64, int32[:,::1])"
)
def cut_tiles(token_rows, positions, page_tables, page_size, max_tokens, grouping,  # type: ignore[no-untyped-def]
              num_kv_heads, num_threads, tile_bounds):  # fmt: skip
    """Cuts tokens into tiles; returns their number.

    A tile takes up to ``max_tokens`` neighbours of one row, or, with ``grouping``, of rows that
    share their first chunk. If there are few tiles, they are cut finer where threads would
    otherwise have nothing to do for longer than that costs.
    """
    num_tiles = _cut(
        token_rows, positions, page_tables, page_size, max_tokens, grouping, tile_bounds
    )
    if num_threads == 1 or num_tiles >= 4 * num_threads or num_tiles == 0:
        return num_tiles
    overhead = _TILE_OVERHEAD * max_tokens
    best = max_tokens
    least = _span(tile_bounds, num_tiles, num_kv_heads, num_threads, overhead)
    finer = (tile_bounds[:num_tiles, 1] - tile_bounds[:num_tiles, 0]).max()
    while finer > max(1, max_tokens // 8):
        finer = (finer + 1) // 2
        num_tiles = _cut(
            token_rows, positions, page_tables, page_size, finer, grouping, tile_bounds
        )
        span = _span(tile_bounds, num_tiles, num_kv_heads, num_threads, overhead)
        if span < least:
            best, least = finer, span
    return _cut(token_rows, positions, page_tables, page_size, best, grouping, tile_bounds)


@open_jit("int64(int32[::1], int32[:,::1], int64, int64, int32[::1])")
def list_pages(context_lens, page_tables, page_size, most, pages):  # type: ignore[no-untyped-def]
    """Fills in up to ``most`` pages of the contexts, those that neighbouring rows share once;
    returns their number."""
    count = 0
    for row in range(len(context_lens)):
        for index in range((context_lens[row] + page_size - 1) // page_size):
            page = page_tables[row, index]
            if row > 0 and page == page_tables[row - 1, index]:
                continue
            if count == most:
                return count
            pages[count] = page
            count += 1
    return count


@open_jit(
    "int64(int32[::1], int32[::1], int32[:,::1], int64, int64, boolean, int64, int64,"
    " int32[::1], int32[::1], int32[::1], int32[:,::1])"
)
def plan_tokens(row_starts, context_lens, page_tables, page_size, max_tokens, grouping,  # type: ignore[no-untyped-def]
                num_kv_heads, num_threads, token_rows, slots, positions, tile_bounds):  # fmt: skip
    """Fills each token's row and slot, and cuts the tokens into tiles; returns their number."""
    for row in range(len(context_lens)):
        for token in range(row_starts[row], row_starts[row + 1]):
            token_rows[token] = row
            position = positions[token]
            page = page_tables[row, position // page_size]
            slots[token] = page * page_size + position % page_size
    return cut_tiles(token_rows, positions, page_tables, page_size, max_tokens, grouping,
                     num_kv_heads, num_threads, tile_bounds)  # fmt: skip
