"""Words of a step's records: what changes from step to step, as int64 (numbers and addresses).

A step has a record of all its tokens, and one of those that are read, for what comes after the last
keys and values: a stage says which of the two it works on. Word 0 is always 0.
"""

from __future__ import annotations

ALL, READ = 0, 1  # the records
NUM_RECORDS = 2

NUM_TOKENS = 1
NUM_LOGITS = 2  # the first ones of those that are read
NUM_THREADS = 3
TOKEN_IDS = 4  # int32[tokens]
POSITIONS = 5  # int32[tokens]
SLOTS = 6  # int32[tokens]: page * page_size + place in it, where keys and values are written
READ_TOKENS = 7  # int32[read tokens]: their numbers among all tokens; in READ alone
PAGE_TABLES = 8  # int32[rows, ...]
PAGE_TABLE_STRIDE = 9  # pages
TOKEN_ROWS = 10  # int32[tokens]: the row that owns each token
TILES = 11  # int32[tiles, 2]: first and end token
NUM_TILES = 12
SCRATCH = 13  # attention scratch of thread 0
SCRATCH_BYTES = 14  # of one thread
FETCH_PAGES = 15  # int32[pages]: pages that attention will read, each once
NUM_FETCH_PAGES = 16
NUM_GREEDY = 17  # logit rows, from the first on, whose largest is looked for
SIZE = 18
