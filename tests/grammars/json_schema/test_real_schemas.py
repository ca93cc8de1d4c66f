"""Real schemas compile, accept their valid instances token by token, and refuse invalid ones.

Every sixteenth is tried; ``RAMET_SCHEMAS_EVERY=1`` tries all (``make grammars``).
"""

from __future__ import annotations

import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema_specifications import REGISTRY

from ramet.grammars import Grammar, GrammarCompiler, JsonSchema, Vocabulary

EVERY = int(os.environ.get("RAMET_SCHEMAS_EVERY", "16"))


def real_vocabulary(rows: list[dict[str, Any]]) -> Vocabulary:
    """Bytes, and pieces of two to eight bytes of the instances: tokens of any border."""
    rng = random.Random(0)
    pieces: set[bytes] = set()
    for row in rows:
        for test in row["tests"][:2]:
            text = json.dumps(test["data"], ensure_ascii=False).encode()
            starts = (rng.randrange(max(1, len(text))) for _ in range(20))
            pieces.update(text[i : i + rng.randrange(2, 9)] for i in starts)
    tokens = [bytes((i,)) for i in range(256)] + sorted(p for p in pieces if len(p) > 1)
    return Vocabulary.from_tokens([*tokens, None], {len(tokens)})


def accepts(grammar: Grammar, text: bytes, ids: dict[bytes, int], rng: random.Random) -> bool:
    """Whether a random tokenisation of a text is accepted, each mask agreeing with each token."""
    matcher = grammar.matcher()
    row = np.zeros(grammar.vocab.num_words, np.int32)
    at = 0
    while at < len(text):
        sizes = [n for n in range(1, 9) if text[at : at + n] in ids]
        piece = text[at : at + rng.choice(sizes)]
        token_id = ids[piece]
        matcher.fill_mask(row)
        allowed = bool(row[token_id >> 5] >> (token_id & 31) & 1)
        assert matcher.accept(token_id) == allowed
        if not allowed:
            return False
        at += len(piece)
    return matcher.is_accepting


@pytest.mark.shared
@pytest.mark.timeout(0)
def test_real_schemas(shared_bench: Path) -> None:
    wanted = set(json.loads((shared_bench / "sample-dev.json").read_text())[::EVERY])
    with gzip.open(shared_bench / "jsonschemabench-dev.jsonl.gz", "rt") as lines:
        rows = [row for row in map(json.loads, lines) if row["id"] in wanted]
    assert len(rows) >= 10
    vocab = real_vocabulary(rows)
    ids = {t: i for i, t in enumerate(vocab.tokens) if t is not None}
    compiler = GrammarCompiler(vocab)
    rng = random.Random(1)
    documents = {uri: REGISTRY.contents(uri) for uri in REGISTRY}
    for row in rows:
        grammar = compiler.compile(JsonSchema(row["schema"], documents=documents))
        for test in row["tests"]:
            text = json.dumps(test["data"], ensure_ascii=False).encode()
            assert accepts(grammar, text, ids, rng) == test["valid"], row["id"]
