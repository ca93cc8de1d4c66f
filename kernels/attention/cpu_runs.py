"""Attention's arithmetic for any number of rows: cut into register tiles."""

from __future__ import annotations

from typing import Any

from numba import njit

from ramet.kernels.attention import cpu_softmax as softmax
from ramet.kernels.attention import cpu_tiles as tiles
from ramet.kernels.attention.cpu_tiles import CHUNK
from ramet.kernels.cpu_support.features import AttentionPath, num_vector_registers
from ramet.kernels.cpu_support.memory import load_i64

_CHUNK_VECTORS = CHUNK // 16
_WIDE = num_vector_registers() == 32


def run_arithmetic(path: AttentionPath) -> tuple[Any, Any, Any]:
    """Compiled functions for a run of rows and one chunk of the keys and values that they share:

    - ``run_scores(keys, queries, scores, num_rows, num_vectors, pair_stride, head_dim)``; behind
      the ``CHUNK // 16`` addresses in ``keys`` and ``values`` stand those of the chunk that is
      needed next, which is prefetched: keys with scores and values with sums, evenly, since
      a core keeps only so many reads in flight
    - ``run_weights(scores, maxima, decays, sums, num_rows, num_vectors)``: masked scores, of whole
      pairs of vectors, to weights
    - ``run_values(values, scores, decays, totals, num_rows, num_vectors, head_dim)``
    """
    size = tiles.item_bytes(path)
    scores6, scores3, scores1 = (tiles.scores(path, num_rows) for num_rows in (6, 3, 1))
    weighted6, weighted3, weighted1 = (tiles.weighted(path, num_rows, 4) for num_rows in (6, 3, 1))
    weighted_narrow = tiles.weighted(path, 1, 1)
    maxima3, maxima1 = softmax.raise_maxima(3), softmax.raise_maxima(1)
    weights3, weights1 = softmax.weights(path, 3), softmax.weights(path, 1)

    def run_scores(keys, queries, scores, num_rows, num_vectors, pair_stride, head_dim):  # type: ignore[no-untyped-def]
        for v in range(0, num_vectors, 4):
            now, out = keys + 8 * v, scores + 64 * v
            next_keys = now + 8 * _CHUNK_VECTORS
            r = 0
            if _WIDE:
                while r + 6 <= num_rows:
                    q, s = queries + size * r * head_dim, out + 4 * r * CHUNK
                    scores6(q, now, next_keys, pair_stride, head_dim, s)
                    r += 6
                if r + 3 <= num_rows:
                    q, s = queries + size * r * head_dim, out + 4 * r * CHUNK
                    scores3(q, now, next_keys, pair_stride, head_dim, s)
                    r += 3
            while r < num_rows:
                q, s = queries + size * r * head_dim, out + 4 * r * CHUNK
                scores1(q, now, next_keys, pair_stride, head_dim, s)
                r += 1
        for v in range((num_vectors + 3) // 4 * 4, _CHUNK_VECTORS):
            at = load_i64(keys, v + _CHUNK_VECTORS)
            tiles.prefetch_lines(at, head_dim // 2, pair_stride)

    def run_weights(scores, maxima, decays, sums, num_rows, num_vectors):  # type: ignore[no-untyped-def]
        r = 0
        while r + 3 <= num_rows:
            maxima3(scores + 4 * r * CHUNK, num_vectors, maxima + 4 * r, decays + 4 * r)
            r += 3
        while r < num_rows:
            maxima1(scores + 4 * r * CHUNK, num_vectors, maxima + 4 * r, decays + 4 * r)
            r += 1
        softmax.exponentials(decays, num_rows)
        pairs = (num_vectors + 1) // 2
        r = 0
        while r + 3 <= num_rows:
            s, total = scores + 4 * r * CHUNK, sums + 64 * r
            weights3(s, pairs, maxima + 4 * r, decays + 4 * r, total)
            r += 3
        while r < num_rows:
            s, total = scores + 4 * r * CHUNK, sums + 64 * r
            weights1(s, pairs, maxima + 4 * r, decays + 4 * r, total)
            r += 1

    def run_values(values, scores, decays, totals, num_rows, num_vectors, head_dim):  # type: ignore[no-untyped-def]
        next_values = values + 8 * _CHUNK_VECTORS
        column = 0
        while column + 64 <= head_dim:
            r = 0
            if _WIDE:
                while r + 6 <= num_rows:
                    p, d, out = scores + 4 * r * CHUNK, decays + 4 * r, totals + 4 * r * head_dim
                    weighted6(p, values, next_values, column, num_vectors, head_dim, d, out)
                    r += 6
                if r + 3 <= num_rows:
                    p, d, out = scores + 4 * r * CHUNK, decays + 4 * r, totals + 4 * r * head_dim
                    weighted3(p, values, next_values, column, num_vectors, head_dim, d, out)
                    r += 3
            while r < num_rows:
                p, d, out = scores + 4 * r * CHUNK, decays + 4 * r, totals + 4 * r * head_dim
                weighted1(p, values, next_values, column, num_vectors, head_dim, d, out)
                r += 1
            column += 64
        while column < head_dim:
            for r in range(num_rows):
                p, d, out = scores + 4 * r * CHUNK, decays + 4 * r, totals + 4 * r * head_dim
                weighted_narrow(p, values, next_values, column, num_vectors, head_dim, d, out)
            column += 16
        for v in range(num_vectors, _CHUNK_VECTORS):
            tiles.prefetch_lines(load_i64(next_values, v), head_dim // 2, 64)

    functions = run_scores, run_weights, run_values
    for function in functions:  # compiled code is linked by name
        function.__name__ = function.__qualname__ = f"{function.__name__}_{path}"
    scores_, weights_, values_ = (njit(function) for function in functions)
    return scores_, weights_, values_
