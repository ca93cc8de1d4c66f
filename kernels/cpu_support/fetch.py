"""Keys and values, fetched while linear layers compute.

Attention over many contexts waits for memory, linear layers of many rows for the multiplier. So the
register tiles of linear layers fetch the next weights and also pages that the next attention will
read: each tile a piece of one page, as far as they go. What is fetched changes no result; what
isn't, attention waits for as it would have anyway.
"""

from __future__ import annotations

from numba import njit

from ramet.kernels.cpu_support.memory import load_i32, load_i64
from ramet.kernels.cpu_support.step import FETCH_PAGES, NUM_FETCH_PAGES

# Operands of every operation with a linear layer.
FETCH = 40  # where the next attention's layer begins in page 0, or 0: nothing is fetched
FETCH_BYTES, FETCH_STRIDE = 41, 42  # of a page's layer; from one page to the next
FETCH_FIRST, FETCH_END = 43, 44  # the operation's share of the step's pages, in 2**-16

LINES = 3
"""Cache lines that a register tile fetches for 8 rows and a group of inputs. Fewer rows fetch
nothing: they wait for their weights."""


@njit
def fetch_plan(stage, step, num_rows, num_groups):  # type: ignore[no-untyped-def]
    """The first piece and the end of pieces, pieces a page, bytes from one piece to the next, and
    the address of a page's last lines that are fetched together."""
    address = load_i64(stage, FETCH)
    if address == 0 or num_rows < 8:
        return 0, 0, 1, 0, 0
    at_once = 64 * LINES * (2 if num_rows >= 16 else 1)
    span = at_once * num_groups
    size = load_i64(stage, FETCH_BYTES)
    pieces = (size + span - 1) // span
    count = load_i64(step, NUM_FETCH_PAGES)
    first = (count * load_i64(stage, FETCH_FIRST)) >> 16
    end = (count * load_i64(stage, FETCH_END)) >> 16
    return first * pieces, end * pieces, pieces, span, size - at_once


@njit
def fetch_piece(stage, step, plan, tile):  # type: ignore[no-untyped-def]
    """Where the operation's tile of that number begins to fetch, or 0; and the latest address from
    which it may fetch all lines of a group."""
    first, end, pieces, span, last = plan
    piece = first + tile
    if piece >= end:
        return 0, 0
    page = load_i32(load_i64(step, FETCH_PAGES), piece // pieces)
    at = load_i64(stage, FETCH) + page * load_i64(stage, FETCH_STRIDE)
    return at + piece % pieces * span, at + last
