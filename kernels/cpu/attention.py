# ruff: noqa: ARG001 (numba calls intrinsics and operations with fixed arguments)
"""Attention over pages on the CPU, each page read once for all tokens that share it.

A token's context is cut into chunks of ``CHUNK`` positions, wherever its pages lie. In a chunk, the
scores, their softmax and the weighted sum of values are found with the chunk's own maximum; chunks
are merged in order of position by log-sum-exp. So one token's arithmetic depends on its position
alone: not on how its prompt was cut into steps, on who shares its step, or on what was cached.

Work is a tile of neighbouring tokens by one key/value head. In each chunk the tile's tokens fall
into runs that name the same pages; a run's queries (times the query heads that share the key/value
head) meet the run's keys as a matrix product. Decode rows below one radix node, rows of one prompt
and verification rows are all runs, at every level of the tree, since each chunk groups anew.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu import ir as vec
from ramet.kernels.cpu.compiled import jit, op
from ramet.kernels.cpu.features import num_vector_registers
from ramet.kernels.cpu.ir import F32, I16, I64, VF32, Variable, i64
from ramet.kernels.cpu.memory import (
    load_f32,
    load_i32,
    load_i64,
    next_task,
    store_f32,
    store_i64,
)
from ramet.kernels.cpu.rows import bits_to_f32
from ramet.kernels.cpu.step import (
    NUM_TILES,
    PAGE_TABLE_STRIDE,
    PAGE_TABLES,
    POSITIONS,
    SCRATCH,
    SCRATCH_BYTES,
    TILES,
    TOKEN_ROWS,
)

CHUNK = 128
_CHUNK_VECTORS = CHUNK // 16
_MAX_TILE_ROWS = 48
_WIDE = num_vector_registers() == 32
_MASKED = -1e30

# Operands.
Q, Q_STRIDE = 2, 3  # float32 rows that begin with all heads' queries, scaled
OUT, OUT_STRIDE = 4, 5  # float32 [tokens, heads * head_dim]
KEYS, VALUES, PAGE_SIZE, PAGE_BYTES = 6, 7, 8, 9
NUM_KV_HEADS, GROUP_SIZE, HEAD_DIM = 10, 11, 12
WINDOW = 13  # a token sees this many positions, itself included; 0: all
SOFT_CAP = 14  # float64 bits: scores become cap * tanh(score / cap); 0: none


def max_tile_tokens(group_size: int) -> int:
    """Most tokens of a tile, for ``group_size`` query heads a key/value head."""
    return max(1, _MAX_TILE_ROWS // group_size)


def scratch_bytes(group_size: int, head_dim: int) -> int:
    """Bytes of one thread's scratch: see ``_layout``."""
    rows = max_tile_tokens(group_size) * group_size
    size = 8 * 2 * _CHUNK_VECTORS + 4 * rows * (CHUNK + 3 * head_dim + 4)
    return -(-size // 4096) * 4096


def _scores(num_rows: int) -> Any:
    @intrinsic
    def tile(typingctx, q, keys, key_stride, head_dim, out):  # type: ignore[no-untyped-def]
        """Scores of ``num_rows`` queries [head_dim] and four vectors of 16 keys.

        ``keys``: address of four addresses; component d of a vector's keys is ``key_stride * d``
        bytes on. One accumulator a score, components in order.
        """

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            q, keys, key_stride, head_dim, out = args
            bases = [vec.load(b, keys, I64, 8 * v) for v in range(4)]
            q_stride = b.mul(head_dim, i64(4))
            rows = [vec.offset(b, q, i64(r), q_stride) for r in range(num_rows)]
            sums = [[Variable(b, vec.vf32(0.0)) for _ in bases] for _ in rows]
            with cgutils.for_range(b, b.udiv(head_dim, i64(4))) as loop:
                for u in range(4):
                    d = b.add(b.mul(loop.index, i64(4)), i64(u))
                    at = b.mul(d, key_stride)
                    vectors = [
                        vec.bf16_to_f32(b, vec.load(b, b.add(base, at), vec.vector(I16)))
                        for base in bases
                    ]
                    for row, accumulators in zip(rows, sums, strict=True):
                        scalar = vec.splat(b, vec.load(b, vec.offset(b, row, d, 4), F32))
                        for accumulator, vector in zip(accumulators, vectors, strict=True):
                            accumulator.set(vec.fma(b, scalar, vector, accumulator.get()))
            for r, accumulators in enumerate(sums):
                for v, accumulator in enumerate(accumulators):
                    vec.store(b, accumulator.get(), out, r * CHUNK * 4 + 64 * v)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 5)), codegen

    return tile


def _weighted(num_rows: int, width: int) -> Any:
    @intrinsic
    def tile(typingctx, p, values, column, num_vectors, head_dim, out):  # type: ignore[no-untyped-def]
        """``num_rows`` weighted sums of values, 16 * ``width`` components from ``column`` on.

        ``values``: address of ``num_vectors`` addresses, each of 16 values [head_dim]. One
        accumulator a component, values in order.
        """

        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            p, values, column, num_vectors, head_dim, out = args
            stride = b.mul(head_dim, i64(2))
            column_bytes = b.mul(column, i64(2))
            sums = [[Variable(b, vec.vf32(0.0)) for _ in range(width)] for _ in range(num_rows)]
            with cgutils.for_range(b, num_vectors) as loop:
                base = vec.load(b, vec.offset(b, values, loop.index, 8), I64)
                base = b.add(base, column_bytes)
                weights = vec.offset(b, p, loop.index, 64)
                with cgutils.for_range(b, i64(4)) as quarter:
                    for u in range(4):
                        t = b.add(b.mul(quarter.index, i64(4)), i64(u))
                        at = vec.offset(b, base, t, stride)
                        vectors = [
                            vec.bf16_to_f32(b, vec.load(b, at, vec.vector(I16), 32 * w))
                            for w in range(width)
                        ]
                        weight_at = vec.offset(b, weights, t, 4)
                        for r, accumulators in enumerate(sums):
                            weight = vec.splat(b, vec.load(b, weight_at, F32, r * CHUNK * 4))
                            for accumulator, vector in zip(accumulators, vectors, strict=True):
                                accumulator.set(vec.fma(b, weight, vector, accumulator.get()))
            target = vec.offset(b, out, column, 4)
            row_bytes = b.mul(head_dim, i64(4))
            for r, accumulators in enumerate(sums):
                row = vec.offset(b, target, i64(r), row_bytes)
                for w, accumulator in enumerate(accumulators):
                    vec.store(b, accumulator.get(), row, 64 * w)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 6)), codegen

    return tile


_scores6, _scores3, _scores1 = (_scores(rows) for rows in (6, 3, 1))
_weighted6, _weighted3, _weighted1 = (_weighted(rows, 4) for rows in (6, 3, 1))
_weighted_narrow = _weighted(1, 1)


@intrinsic
def _softmax_row(typingctx, scores, num_vectors, out):  # type: ignore[no-untyped-def]
    """Scores to ``exp(score - maximum)`` in place; the maximum and their sum to ``out``."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        scores, num_vectors, out = args
        largest = Variable(b, vec.vf32(_MASKED))
        with cgutils.for_range(b, num_vectors) as loop:
            value = vec.load(b, vec.offset(b, scores, loop.index, 64), VF32)
            largest.set(vec.maximum(b, value, largest.get()))
        maximum = vec.fold(b, largest.get(), vec.maximum)
        shift = vec.splat(b, maximum)
        total = Variable(b, vec.vf32(0.0))
        with cgutils.for_range(b, num_vectors) as loop:
            at = vec.offset(b, scores, loop.index, 64)
            value = vec.exp(b, b.fsub(vec.load(b, at, VF32), shift))
            vec.store(b, value, at)
            total.set(b.fadd(total.get(), value))
        vec.store(b, maximum, out)
        vec.store(b, vec.fold(b, total.get(), vec.fadd), out, 4)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 3)), codegen


@intrinsic
def _cap_row(typingctx, scores, num_vectors, cap):  # type: ignore[no-untyped-def]
    """``cap * tanh(score / cap)`` in place, as ``cap - 2 * cap / (exp(2 * score / cap) + 1)``."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        scores, num_vectors, cap = args
        caps = vec.splat(b, cap)
        with cgutils.for_range(b, num_vectors) as loop:
            at = vec.offset(b, scores, loop.index, 64)
            value = b.fdiv(b.fmul(vec.load(b, at, VF32), vec.vf32(2.0)), caps)
            value = b.fadd(vec.exp(b, vec.minimum(b, value, vec.vf32(80.0))), vec.vf32(1.0))
            value = b.fsub(caps, b.fdiv(b.fmul(caps, vec.vf32(2.0)), value))
            vec.store(b, value, at)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), codegen


@intrinsic
def _merge_row(typingctx, state, total, part, weighted, head_dim):  # type: ignore[no-untyped-def]
    """Merges a chunk into a row: (maximum, sum) ``part`` into ``state``, sums of values alike."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        state, total, part, weighted, head_dim = args
        old, new = (vec.load(b, at, F32) for at in (state, part))
        maximum = vec.maximum(b, old, new)
        keep, take = (vec.exp(b, b.fsub(value, maximum)) for value in (old, new))
        taken = b.fmul(vec.load(b, part, F32, 4), take)
        kept = vec.fma(b, vec.load(b, state, F32, 4), keep, taken)
        vec.store(b, maximum, state)
        vec.store(b, kept, state, 4)
        keep, take = vec.splat(b, keep), vec.splat(b, take)
        with cgutils.for_range(b, b.udiv(head_dim, i64(16))) as loop:
            at = vec.offset(b, total, loop.index, 64)
            new = b.fmul(vec.load(b, vec.offset(b, weighted, loop.index, 64), VF32), take)
            vec.store(b, vec.fma(b, vec.load(b, at, VF32), keep, new), at)
        return context.get_dummy_value()

    return types.void(*([types.int64] * 5)), codegen


@intrinsic
def _finish_row(typingctx, state, total, head_dim, out):  # type: ignore[no-untyped-def]
    """Divides a row's sums of values by the sum of its weights."""

    def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
        state, total, head_dim, out = args
        factor = vec.splat(b, b.fdiv(vec.f32(1.0), vec.load(b, state, F32, 4)))
        with cgutils.for_range(b, b.udiv(head_dim, i64(16))) as loop:
            value = vec.load(b, vec.offset(b, total, loop.index, 64), VF32)
            vec.store(b, b.fmul(value, factor), vec.offset(b, out, loop.index, 64))
        return context.get_dummy_value()

    return types.void(*([types.int64] * 4)), codegen


@njit(inline="always")
def _layout(scratch, num_rows, head_dim):  # type: ignore[no-untyped-def]
    """Addresses in a thread's scratch: key and value addresses, queries, scores, chunk sums of
    values, total sums of values, chunk (maximum, sum), total (maximum, sum)."""
    keys = scratch
    values = keys + 8 * _CHUNK_VECTORS
    queries = values + 8 * _CHUNK_VECTORS
    scores = queries + 4 * num_rows * head_dim
    weighted = scores + 4 * num_rows * CHUNK
    totals = weighted + 4 * num_rows * head_dim
    parts = totals + 4 * num_rows * head_dim
    states = parts + 8 * num_rows
    return keys, values, queries, scores, weighted, totals, parts, states


@njit(inline="always")
def _same_pages(tables, stride, row, other, first_page, last_page):  # type: ignore[no-untyped-def]
    if row == other:
        return True
    a, b = tables + 4 * row * stride, tables + 4 * other * stride
    page = first_page
    while page <= last_page and load_i32(a, page) == load_i32(b, page):
        page += 1
    return page > last_page


@njit(inline="always")
def _run_scores(keys, queries, scores, num_rows, num_vectors, key_stride, head_dim):  # type: ignore[no-untyped-def]
    for v in range(0, num_vectors, 4):
        r = 0
        if _WIDE:
            while r + 6 <= num_rows:
                _scores6(queries + 4 * r * head_dim, keys + 8 * v, key_stride, head_dim,
                         scores + 4 * r * CHUNK + 64 * v)  # fmt: skip
                r += 6
            if r + 3 <= num_rows:
                _scores3(queries + 4 * r * head_dim, keys + 8 * v, key_stride, head_dim,
                         scores + 4 * r * CHUNK + 64 * v)  # fmt: skip
                r += 3
        while r < num_rows:
            _scores1(queries + 4 * r * head_dim, keys + 8 * v, key_stride, head_dim,
                     scores + 4 * r * CHUNK + 64 * v)  # fmt: skip
            r += 1


@njit(inline="always")
def _run_values(values, scores, weighted, num_rows, num_vectors, head_dim):  # type: ignore[no-untyped-def]
    column = 0
    while column + 64 <= head_dim:
        r = 0
        if _WIDE:
            while r + 6 <= num_rows:
                _weighted6(scores + 4 * r * CHUNK, values, column, num_vectors, head_dim,
                           weighted + 4 * r * head_dim)  # fmt: skip
                r += 6
            if r + 3 <= num_rows:
                _weighted3(scores + 4 * r * CHUNK, values, column, num_vectors, head_dim,
                           weighted + 4 * r * head_dim)  # fmt: skip
                r += 3
        while r < num_rows:
            _weighted1(scores + 4 * r * CHUNK, values, column, num_vectors, head_dim,
                       weighted + 4 * r * head_dim)  # fmt: skip
            r += 1
        column += 64
    while column < head_dim:
        for r in range(num_rows):
            _weighted_narrow(scores + 4 * r * CHUNK, values, column, num_vectors, head_dim,
                             weighted + 4 * r * head_dim)  # fmt: skip
        column += 16


@op
def attend_tiles(stage: int, step: int, counter: int, thread: int) -> None:
    """Attention of every tile and key/value head."""
    num_kv_heads = load_i64(stage, NUM_KV_HEADS)
    group_size = load_i64(stage, GROUP_SIZE)
    head_dim = load_i64(stage, HEAD_DIM)
    page_size = load_i64(stage, PAGE_SIZE)
    page_bytes = load_i64(stage, PAGE_BYTES)
    window = load_i64(stage, WINDOW)
    cap = bits_to_f32(load_i64(stage, SOFT_CAP))
    positions = load_i64(step, POSITIONS)
    token_rows = load_i64(step, TOKEN_ROWS)
    tables = load_i64(step, PAGE_TABLES)
    table_stride = load_i64(step, PAGE_TABLE_STRIDE)
    num_tiles = load_i64(step, NUM_TILES)
    scratch = load_i64(step, SCRATCH) + thread * load_i64(step, SCRATCH_BYTES)
    head_bytes = head_dim * page_size * 2
    page_vectors = page_size // 16
    max_rows = max(1, _MAX_TILE_ROWS // group_size) * group_size
    keys, values, queries, scores, weighted, totals, parts, states = _layout(
        scratch, max_rows, head_dim
    )
    while True:
        task = next_task(counter)
        if task >= num_tiles * num_kv_heads:
            break
        # Later tiles of a prompt see more: they go first, so that threads end together.
        tile = num_tiles - 1 - task // num_kv_heads
        head = task % num_kv_heads
        begin = load_i32(load_i64(step, TILES), 2 * tile)
        end = load_i32(load_i64(step, TILES), 2 * tile + 1)
        first_seen, last_seen = load_i32(positions, begin), 0
        for token in range(begin, end):
            q = load_i64(stage, Q) + token * load_i64(stage, Q_STRIDE)
            q += 4 * head * group_size * head_dim
            target = queries + 4 * (token - begin) * group_size * head_dim
            for i in range(group_size * head_dim):
                store_f32(target, i, load_f32(q, i))
            position = load_i32(positions, token)
            first_seen, last_seen = min(first_seen, position), max(last_seen, position)
        num_rows = (end - begin) * group_size
        for i in range(num_rows * head_dim):
            store_f32(totals, i, types.float32(0))
        for r in range(num_rows):
            store_f32(states, 2 * r, types.float32(_MASKED))
            store_f32(states, 2 * r + 1, types.float32(0))
        first_chunk = 0
        if window > 0:
            first_chunk = max(0, first_seen - window + 1) // CHUNK
        for chunk in range(first_chunk, last_seen // CHUNK + 1):
            base = chunk * CHUNK
            run = begin
            while run < end:
                row = load_i32(token_rows, run)
                visible = load_i32(positions, run) + 1 - base
                if visible <= 0:
                    run += 1
                    continue
                stop = run + 1
                while stop < end:
                    more = load_i32(positions, stop) + 1 - base
                    last = base + min(CHUNK, max(visible, more)) - 1
                    other = load_i32(token_rows, stop)
                    if more <= 0 or not _same_pages(
                        tables, table_stride, row, other, base // page_size, last // page_size
                    ):
                        break
                    visible = max(visible, more)
                    stop += 1
                num_vectors = (min(CHUNK, visible) + 15) // 16
                for v in range((num_vectors + 3) // 4 * 4):
                    place = base // 16 + min(v, num_vectors - 1)
                    page = load_i32(tables + 4 * row * table_stride, place // page_vectors)
                    at = page * page_bytes + head * head_bytes
                    inner = place % page_vectors
                    store_i64(keys, v, load_i64(stage, KEYS) + at + inner * 32)
                    store_i64(values, v, load_i64(stage, VALUES) + at + inner * 32 * head_dim)
                first = (run - begin) * group_size
                count = (stop - run) * group_size
                run_scores = scores + 4 * first * CHUNK
                run_weighted = weighted + 4 * first * head_dim
                _run_scores(keys, queries + 4 * first * head_dim, run_scores, count, num_vectors,
                            page_size * 2, head_dim)  # fmt: skip
                for r in range(first, first + count):
                    position = load_i32(positions, begin + r // group_size)
                    s = scores + 4 * r * CHUNK
                    if cap > 0:
                        _cap_row(s, num_vectors, cap)
                    for t in range(position + 1 - base, num_vectors * 16):
                        store_f32(s, t, types.float32(_MASKED))
                    if window > 0:
                        hidden = min(position - window + 1 - base, num_vectors * 16)
                        for t in range(hidden):
                            store_f32(s, t, types.float32(_MASKED))
                    _softmax_row(s, num_vectors, parts + 8 * r)
                _run_values(values, run_scores, run_weighted, count, num_vectors, head_dim)
                for r in range(first, first + count):
                    if load_f32(parts, 2 * r) > types.float32(_MASKED):
                        _merge_row(states + 8 * r, totals + 4 * r * head_dim, parts + 8 * r,
                                   weighted + 4 * r * head_dim, head_dim)  # fmt: skip
                run = stop
        for r in range(num_rows):
            token = begin + r // group_size
            out = load_i64(stage, OUT) + token * load_i64(stage, OUT_STRIDE)
            out += 4 * (head * group_size + r % group_size) * head_dim
            _finish_row(states + 8 * r, totals + 4 * r * head_dim, head_dim, out)


@jit()
def plan_tokens(row_starts, context_lens, page_tables, page_size, max_tokens, grouping,  # type: ignore[no-untyped-def]
                token_rows, slots, positions, tiles):  # fmt: skip
    """Fills each token's row and slot, and cuts the tokens into tiles; returns their number.

    A tile takes up to ``max_tokens`` neighbours of one row, or, with ``grouping``, of rows that
    share their first chunk. Positions must be those of the batch, checked by the caller.
    """
    num_tiles = 0
    count = 0
    chunk_pages = (CHUNK + page_size - 1) // page_size
    for row in range(len(context_lens)):
        shared = grouping and row > 0
        if shared:
            first, before = row_starts[row], row_starts[row - 1]
            needed = chunk_pages * page_size
            if positions[first] < needed or positions[before] < needed:
                shared = False
            else:
                for page in range(chunk_pages):
                    if page_tables[row, page] != page_tables[row - 1, page]:
                        shared = False
                        break
        for token in range(row_starts[row], row_starts[row + 1]):
            token_rows[token] = row
            position = positions[token]
            slots[token] = (
                page_tables[row, position // page_size] * page_size + position % page_size
            )
            if count == 0 or count == max_tokens or (token == row_starts[row] and not shared):
                if num_tiles > 0:
                    tiles[num_tiles - 1, 1] = token
                tiles[num_tiles, 0] = token
                num_tiles += 1
                count = 0
            count += 1
    if num_tiles > 0:
        tiles[num_tiles - 1, 1] = row_starts[-1]
    return num_tiles
