# ruff: noqa: ARG001 (numba calls intrinsics with a typing context)
"""Tiles of linear layers by AMX: the integer sums of a group of 16 outputs by 16 rows are one
instruction.

Weights are unpacked to signed bytes first, once for all tiles of a task's rows. Each group's sums
go through memory to vector registers, where scales and minimums are applied as in
``cpu.register_tiles``: integers have no rounding and the float operations are the same in the same
order, so a row's result is the same bits by either of them, and few rows can take the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.ir import I8, I64, VI32, Builder, Value, Variable, i64
from ramet.kernels.cpu_support.tiles import AmxTiles, EmulatedTiles, Tiles
from ramet.kernels.linear import cpu as linear
from ramet.kernels.linear.cpu import TILE_ROWS
from ramet.kernels.linear.cpu_weights import WeightFormat

LEAST_ROWS: Final = 12
"""Rows from which on a tile takes less time than vector instructions."""

GROUP_BYTES: Final = 512
"""Of a group's unpacked weights."""

# Tiles: sums; activations and weights of a group; activations and weights of half a group.
_SUMS, _ROWS, _WEIGHTS, _HALF_ROWS, _HALF_WEIGHTS = range(5)
_SHAPES: Final = {
    _SUMS: (TILE_ROWS, 64),
    _ROWS: (TILE_ROWS, 32),
    _WEIGHTS: (8, 64),
    _HALF_ROWS: (TILE_ROWS, 16),
    _HALF_WEIGHTS: (4, 64),
}

TileKind = type[AmxTiles] | type[EmulatedTiles]
TILE_KINDS: Final[dict[str, TileKind]] = {"amx": AmxTiles, "emulated": EmulatedTiles}


def configuring(kind: TileKind) -> tuple[Any, Any]:
    """Functions without arguments that give a thread's tiles their shapes, and free them."""

    @intrinsic
    def configure(typingctx):  # type: ignore[no-untyped-def]
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            kind(b, _SHAPES).configure()
            return context.get_dummy_value()

        return types.void(), codegen

    @intrinsic
    def release(typingctx):  # type: ignore[no-untyped-def]
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            kind(b, _SHAPES).release()
            return context.get_dummy_value()

        return types.void(), codegen

    return configure, release


def unpacking(form: WeightFormat) -> Any:
    """A function that unpacks a block's ``num_groups`` groups to bytes at ``out``."""

    @intrinsic
    def unpack(typingctx, w, num_groups, out):  # type: ignore[no-untyped-def]
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            w, num_groups, out = args
            zero_point = ir.Constant(vec.vector(I8, 64), [form.zero_point % 256] * 64)
            with cgutils.for_range(b, num_groups) as loop:
                target = vec.offset(b, out, loop.index, GROUP_BYTES)
                words = linear.load_words(b, form, vec.offset(b, w, loop.index, form.stride))
                for t, word in enumerate(words):
                    if form.zero_point:
                        word = b.sub(b.bitcast(word, zero_point.type), zero_point)
                    vec.store(b, word, target, 64 * t)
            return context.get_dummy_value()

        return types.void(*([types.int64] * 3)), codegen

    return unpack


def amx_tiles(form: WeightFormat, kind: TileKind) -> Any:
    """Tiles as ``cpu.register_tiles``, of up to ``TILE_ROWS`` rows. Activations of as many are
    read, and the results of those beyond ``count`` dropped. ``unpacked``: the block's bytes."""

    @intrinsic
    def tile(typingctx, count, stage, w, next_w, row, y, y_stride, accumulate, bias,  # type: ignore[no-untyped-def]
             fetch, fetch_last, unpacked):  # fmt: skip
        def codegen(context, b, sig, args):  # type: ignore[no-untyped-def]
            _Tile(b, form, kind(b, _SHAPES), args).emit()
            return context.get_dummy_value()

        return types.void(*([types.int64] * 12)), codegen

    return tile


class _Tile:
    """Emits a tile."""

    def __init__(self, b: Builder, form: WeightFormat, tiles: Tiles, args: list[Value]) -> None:
        self._b, self._form, self._tiles = b, form, tiles
        (self._count, self._stage, self._w, self._next_w, row, self._y, self._y_stride,
         self._accumulate, self._bias, self._fetch, self._fetch_last,
         self._unpacked) = args  # fmt: skip
        self._x_stride = self._operand(linear.X_STRIDE)
        self._x = vec.offset(b, self._operand(linear.X), row, self._x_stride)
        self._side_stride = self._operand(linear.SCALE_STRIDE)
        self._scales, self._scaled_sums = (
            vec.offset(b, self._operand(number), row, self._side_stride)
            for number in (linear.SCALES, linear.SCALED_SUMS)
        )
        if form.has_halves:
            self._operands = _HALF_ROWS, _HALF_WEIGHTS
        else:
            self._operands = _ROWS, _WEIGHTS
        self._sum_bytes = 64 * TILE_ROWS * (2 if form.has_halves else 1)

    def emit(self) -> None:
        """While a group's sums are computed and the next one's operands loaded, those of the group
        before are scaled: on a core that runs two threads, tile instructions hardly overlap."""
        b = self._b
        num_groups = self._operand(linear.NUM_GROUPS)
        last = b.sub(num_groups, i64(1))

        def in_range(group: Value) -> Value:
            return b.select(b.icmp_unsigned("<", group, last), group, last)

        kind = ir.ArrayType(I8, 2 * self._sum_bytes + 64)
        memory = b.ptrtoint(cgutils.alloca_once(b, kind), I64)
        sums = b.and_(b.add(memory, i64(63)), i64(-64))
        totals = [Variable(b, vec.vf32(0.0)) for _ in range(TILE_ROWS)]
        self._load(i64(0), 0)
        self._sum_group(i64(0), in_range(i64(1)), sums)
        with cgutils.for_range(b, num_groups) as loop:
            group = loop.index
            following = b.add(group, i64(1))
            self._sum_group(
                in_range(following),
                in_range(b.add(group, i64(2))),
                self._place(sums, following),
                lambda: self._add_group(group, self._place(sums, group), totals),
            )
        if self._form.has_middle:
            rows = [vec.offset(b, self._scaled_sums, i64(r), self._side_stride)
                    for r in range(TILE_ROWS)]  # fmt: skip
            linear.add_middles(b, self._form, self._w, num_groups, rows, totals)
        place = self._y, self._y_stride
        linear.store_totals(b, totals, place, self._accumulate, self._bias, self._count)

    def _operand(self, number: int) -> Value:
        return vec.load(self._b, self._stage, I64, 8 * number)

    def _place(self, sums: Value, group: Value) -> Value:
        """Where a group's sums are: even and odd ones take turns."""
        return vec.offset(self._b, sums, self._b.and_(group, i64(1)), self._sum_bytes)

    def _load(self, group: Value, part: int) -> None:
        """Loads the operands of a group, or of one of its halves."""
        b, tiles = self._b, self._tiles
        row_tile, weight_tile = self._operands
        x = vec.offset(b, self._x, group, 32)
        weights = vec.offset(b, self._unpacked, group, GROUP_BYTES)
        tiles.load(row_tile, b.add(x, i64(16 * part)), self._x_stride)
        tiles.load(weight_tile, b.add(weights, i64(256 * part)), i64(64))

    def _sum_group(
        self,
        group: Value,
        following: Value,
        target: Value,
        overlap: Callable[[], None] | None = None,
    ) -> None:
        """Stores the sums of the loaded group, loads the following one, and in between emits
        ``overlap``."""
        b, tiles = self._b, self._tiles
        num_parts = 2 if self._form.has_halves else 1
        for part in range(num_parts):
            is_last = part + 1 == num_parts
            tiles.zero(_SUMS)
            tiles.dot(_SUMS, *self._operands, signed=self._form.zero_point != 0)
            self._load(following if is_last else group, 0 if is_last else part + 1)
            if is_last and overlap is not None:
                overlap()
            tiles.store(_SUMS, b.add(target, i64(64 * TILE_ROWS * part)), i64(64))

    def _add_group(self, group: Value, sums: Value, totals: list[Variable]) -> None:
        b = self._b
        following = vec.offset(b, self._next_w, group, self._form.stride)
        for line in range(0, self._form.stride, 64):
            vec.prefetch(b, following, line)
        linear.fetch_lines(b, TILE_ROWS, group, self._fetch, self._fetch_last)
        quants = vec.offset(b, self._w, group, self._form.stride)
        sides = linear.load_sides(b, self._form, quants)
        bases = [vec.offset(b, base, group, 4) for base in (self._scales, self._scaled_sums)]
        for r, total in enumerate(totals):
            scale_at, scaled_at = (vec.offset(b, at, i64(r), self._side_stride) for at in bases)
            places = range(64 * r, self._sum_bytes, 64 * TILE_ROWS)
            dots = [vec.load(b, sums, VI32, place) for place in places]
            linear.add_group(b, sides, dots, (scale_at, scaled_at), total)
        vec.fence(b)
