"""Builds a step's records from a batch's arrays, in one call of compiled code.

What compiled code is given it reads where it points, so the arrays are checked first. Between two
steps the caches hold nothing of what Python needs, and each call takes several times as long.
"""

from __future__ import annotations

from numba import njit

from ramet.jit import jit
from ramet.kernels.attention.cpu import cut_tiles, list_pages, plan_tokens
from ramet.kernels.cpu_support import step as words

FAULTS = (
    "",
    "row_starts must cut the tokens into rows of at least one",
    "positions must be the last ones of each row's context",
    "token ids must be below the size of the vocabulary",
    "logit_tokens and hidden_tokens must be indices of tokens",
    "a context has more tokens than the model takes",
    "page_tables are narrower than the longest context",
    "page ids must be below the number of pages",
)
"""The faults of ``first_fault`` by number; 0 is none."""


@njit
def first_fault(  # type: ignore[no-untyped-def]
    token_ids,
    positions,
    row_starts,
    context_lens,
    page_tables,
    page_copies,
    logit_tokens,
    hidden_tokens,
    vocab_size,
    max_len,
    page_size,
    num_pages,
):
    """The number of the first fault of a batch, whose int32 arrays are as ``Batch`` has them."""
    num_rows, num_tokens = len(context_lens), len(token_ids)
    if num_tokens == 0 or len(row_starts) != num_rows + 1 or len(page_tables) != num_rows:
        return 1
    if row_starts[0] != 0 or row_starts[num_rows] != num_tokens:
        return 1
    for row in range(num_rows):
        if row_starts[row + 1] <= row_starts[row]:
            return 1
    if len(positions) != num_tokens:
        return 2
    for row in range(num_rows):
        start, end, context_len = row_starts[row], row_starts[row + 1], context_lens[row]
        if context_len < end - start:
            return 2
        for token in range(start, end):
            if positions[token] != context_len - (end - token):
                return 2
        if context_len > max_len:
            return 5
        count = (context_len + page_size - 1) // page_size
        if page_tables.shape[1] < count:
            return 6
        for place in range(count):
            if not 0 <= page_tables[row, place] < num_pages:
                return 7
    for token in range(num_tokens):
        if not 0 <= token_ids[token] < vocab_size:
            return 3
    for wanted in (logit_tokens, hidden_tokens):
        for token in wanted:
            if not 0 <= token < num_tokens:
                return 4
    for copy in range(len(page_copies)):
        for side in range(2):
            if not 0 <= page_copies[copy, side] < num_pages:
                return 7
    return 0


# Rows of the scratch for tokens.
_TOKEN_ROWS, _SLOTS, _READ, _READ_ROWS, _READ_POSITIONS = range(5)
NUM_TOKEN_ROWS = 5


@jit(
    "int64(int32[::1], int32[::1], int32[::1], int32[::1], int32[:,::1], int32[:,::1], int32[::1],"
    " int32[::1], int64, int64, int64, int64, int64, boolean, int64, int64, int64,"
    " int32[:,::1], int32[:,:,::1], int32[::1], int64[:,::1])"
)
def record_step(  # type: ignore[no-untyped-def]
    token_ids,
    positions,
    row_starts,
    context_lens,
    page_tables,
    page_copies,
    logit_tokens,
    hidden_tokens,
    num_greedy,
    vocab_size,
    max_len,
    page_size,
    num_pages,
    grouping,
    tile_tokens,
    num_kv_heads,
    num_threads,
    tokens,
    tiles,
    fetched,
    step,
):
    """Checks a batch, and fills in its step's records, but for SCRATCH and SCRATCH_BYTES.

    Args:
        num_greedy: NUM_GREEDY.
        grouping, tile_tokens, num_kv_heads, num_threads: see ``attention.cut_tiles``.
        tokens, tiles: scratch [NUM_TOKEN_ROWS, tokens], [2, tokens, 2], wide enough for all tokens
            and for those that are read. The records point to it.
        fetched: scratch for as many pages as may be fetched.
        step: the records [NUM_RECORDS, SIZE] (see ``cpu.step``).

    Returns:
        The highest page that the step writes; or, with nothing filled in, the number of
        the first fault of the batch (``first_fault``), negative.
    """
    fault = first_fault(token_ids, positions, row_starts, context_lens, page_tables, page_copies,
                        logit_tokens, hidden_tokens, vocab_size, max_len, page_size,
                        num_pages)  # fmt: skip
    if fault != 0:
        return -fault
    num_tokens, num_logits = len(token_ids), len(logit_tokens)
    num_read = num_logits + len(hidden_tokens)
    rows, slots = tokens[_TOKEN_ROWS, :num_tokens], tokens[_SLOTS, :num_tokens]
    read, read_rows = tokens[_READ, :num_read], tokens[_READ_ROWS, :num_read]
    read_positions = tokens[_READ_POSITIONS, :num_read]
    num_tiles = plan_tokens(row_starts, context_lens, page_tables, page_size, tile_tokens, grouping,
                            num_kv_heads, num_threads, rows, slots, positions,
                            tiles[0])  # fmt: skip
    # The last layer reads no more than its keys and values of the other tokens.
    for index in range(num_read):
        token = logit_tokens[index] if index < num_logits else hidden_tokens[index - num_logits]
        read[index] = token
        read_rows[index], read_positions[index] = rows[token], positions[token]
    num_read_tiles = cut_tiles(read_rows, read_positions, page_tables, page_size, tile_tokens,
                               grouping, num_kv_heads, num_threads, tiles[1])  # fmt: skip
    num_fetched = list_pages(context_lens, page_tables, page_size, len(fetched), fetched)
    for record in range(words.NUM_RECORDS):
        step[record, words.NUM_LOGITS] = num_logits
        step[record, words.PAGE_TABLES] = page_tables.ctypes.data
        step[record, words.PAGE_TABLE_STRIDE] = page_tables.shape[1]
        step[record, words.FETCH_PAGES] = fetched.ctypes.data
        step[record, words.NUM_FETCH_PAGES] = num_fetched
    step[words.ALL, words.NUM_TOKENS] = num_tokens
    step[words.ALL, words.TOKEN_IDS] = token_ids.ctypes.data
    step[words.ALL, words.POSITIONS] = positions.ctypes.data
    step[words.ALL, words.SLOTS] = slots.ctypes.data
    step[words.ALL, words.TOKEN_ROWS] = rows.ctypes.data
    step[words.ALL, words.TILES] = tiles[0].ctypes.data
    step[words.ALL, words.NUM_TILES] = num_tiles
    step[words.READ, words.NUM_TOKENS] = num_read
    step[words.READ, words.READ_TOKENS] = read.ctypes.data
    step[words.READ, words.POSITIONS] = read_positions.ctypes.data
    step[words.READ, words.TOKEN_ROWS] = read_rows.ctypes.data
    step[words.READ, words.TILES] = tiles[1].ctypes.data
    step[words.READ, words.NUM_TILES] = num_read_tiles
    step[words.READ, words.NUM_GREEDY] = num_greedy
    highest = 0
    for token in range(num_tokens):
        highest = max(highest, slots[token] // page_size)
    return highest
