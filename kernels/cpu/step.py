"""Words of a step's record: what changes from step to step, as int64 (numbers and addresses).

Word 0 is always 0.
"""

from __future__ import annotations

NUM_TOKENS = 1
NUM_LOGITS = 2
NUM_THREADS = 3
TOKEN_IDS = 4  # int32[tokens]
POSITIONS = 5  # int32[tokens]
SLOTS = 6  # int32[tokens]: page * page_size + place in it, where keys and values are written
LOGIT_TOKENS = 7  # int32[logits]
PAGE_TABLES = 8  # int32[rows, ...]
PAGE_TABLE_STRIDE = 9  # pages
TOKEN_ROWS = 10  # int32[tokens]: the row that owns each token
TILES = 11  # int32[tiles, 2]: first and end token
NUM_TILES = 12
SCRATCH = 13  # attention scratch of thread 0
SCRATCH_BYTES = 14  # of one thread
SIZE = 15
