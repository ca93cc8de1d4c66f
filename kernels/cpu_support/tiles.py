"""Tile instructions of Intel AMX, and the same in plain vector instructions.

A tile is up to 16 rows of 64 bytes. ``tmm`` registers are named by constants in the instructions,
and LLVM neither allocates nor saves them: ``configure`` gives them their shapes, for one thread,
until ``release``. The products are Intel's TDPBSSD and TDPBSUD: ``c[m, n] += a[m, k] * w[k, n]`` in
int32, where row ``k // 4`` of ``w`` holds four bytes of each of 16 columns.

Sums of integers don't depend on their order, so ``EmulatedTiles`` give the same bits on any CPU;
tests use them where there is no AMX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from ramet.kernels.cpu_support import ir as vec
from ramet.kernels.cpu_support.ir import I8, I32, I64, VI32, Builder, Value, i64

NUM_TILES = 8
TILE_BYTES = 1024
_VOID = ir.VoidType()
_POINTER = I8.as_pointer()

Shapes = Mapping[int, tuple[int, int]]
"""Rows, and bytes of a row, of each tile."""


class AmxTiles:
    """Tiles in the registers of the CPU (AMX-TILE and AMX-INT8), for the code of one function."""

    def __init__(self, b: Builder, shapes: Shapes) -> None:
        self._b = b
        self._shapes = shapes

    def configure(self) -> None:
        """Gives this thread's tiles their shapes (LDTILECFG)."""
        b = self._b
        config = bytearray(64)
        config[0] = 1
        for tile, (num_rows, row_bytes) in self._shapes.items():
            config[16 + 2 * tile] = row_bytes
            config[48 + tile] = num_rows
        kind = vec.vector(I8, 64)
        table = cgutils.global_constant(b, "tile_shapes", ir.Constant(kind, list(config)))
        _emit(self._b, "ldtilecfg", [b.bitcast(table, _POINTER)])

    def release(self) -> None:
        """Frees the tiles, so that a switch of threads has nothing of theirs to save."""
        _emit(self._b, "tilerelease", [])

    def zero(self, tile: int) -> None:
        _emit(self._b, "tilezero", [_number(tile)])

    def load(self, tile: int, address: Value, stride: Value) -> None:
        """Loads rows that lie ``stride`` bytes apart."""
        _emit(self._b, "tileloadd64", [_number(tile), self._b.inttoptr(address, _POINTER), stride])

    def store(self, tile: int, address: Value, stride: Value) -> None:
        _emit(self._b, "tilestored64", [_number(tile), self._b.inttoptr(address, _POINTER), stride])

    def dot(self, c: int, a: int, w: int, *, signed: bool) -> None:
        """``c += a @ w`` for signed bytes ``a``, and signed or unsigned ``w``; three tiles."""
        assert len({c, a, w}) == 3
        _emit(self._b, "tdpbssd" if signed else "tdpbsud", [_number(c), _number(a), _number(w)])


class EmulatedTiles:
    """Tiles in memory, for CPUs without AMX."""

    def __init__(self, b: Builder, shapes: Shapes) -> None:
        self._b = b
        self._shapes = shapes
        kind = ir.ArrayType(I8, NUM_TILES * TILE_BYTES)
        self._memory = b.ptrtoint(cgutils.alloca_once(b, kind), I64)

    def configure(self) -> None:
        pass

    def release(self) -> None:
        pass

    def zero(self, tile: int) -> None:
        with cgutils.for_range(self._b, i64(self._shapes[tile][0])) as rows:
            vec.store(self._b, vec.vi32(0), self._row(tile, rows.index))

    def load(self, tile: int, address: Value, stride: Value) -> None:
        self._move(tile, address, stride, loads=True)

    def store(self, tile: int, address: Value, stride: Value) -> None:
        self._move(tile, address, stride, loads=False)

    def dot(self, c: int, a: int, w: int, *, signed: bool) -> None:
        b = self._b
        (num_rows, _), (_, row_bytes) = self._shapes[c], self._shapes[a]
        shift = b.ashr if signed else b.lshr
        with (
            cgutils.for_range(b, i64(num_rows)) as rows,
            cgutils.for_range(b, i64(row_bytes // 4)) as columns,
        ):
            at = self._row(c, rows.index)
            x = vec.offset(b, self._row(a, rows.index), columns.index, 4)
            words = vec.load(b, self._row(w, columns.index), VI32)
            total = vec.load(b, at, VI32)
            for k in range(4):
                weights = shift(b.shl(words, vec.vi32(24 - 8 * k)), vec.vi32(24))
                byte = vec.splat(b, b.sext(vec.load(b, x, I8, k), I32))
                total = b.add(total, b.mul(weights, byte))
            vec.store(b, total, at)

    def _row(self, tile: int, row: Value) -> Value:
        b = self._b
        return vec.offset(b, b.add(self._memory, i64(tile * TILE_BYTES)), row, 64)

    def _move(self, tile: int, address: Value, stride: Value, *, loads: bool) -> None:
        b = self._b
        num_rows, row_bytes = self._shapes[tile]
        kind = vec.vector(I8, row_bytes)
        with cgutils.for_range(b, i64(num_rows)) as rows:
            outside = vec.offset(b, address, rows.index, stride)
            inside = self._row(tile, rows.index)
            source, target = (outside, inside) if loads else (inside, outside)
            vec.store(b, vec.load(b, source, kind), target)


Tiles = AmxTiles | EmulatedTiles


def _number(tile: int) -> Value:
    return ir.Constant(I8, tile)


def _emit(b: Builder, name: str, arguments: list[Any]) -> None:
    vec.call(b, f"llvm.x86.{name}", _VOID, arguments)
