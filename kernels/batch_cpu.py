"""Whether a batch's arrays can be trusted by compiled code, which reads where they point."""

from __future__ import annotations

from ramet.compiled import open_jit

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
"""What ``first_fault`` finds, by its number; 0 is none."""


@open_jit(
    "int64(int32[::1], int32[::1], int32[::1], int32[::1], int32[:,::1], int32[:,::1], int32[::1],"
    " int32[::1], int64, int64, int64, int64)"
)
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
