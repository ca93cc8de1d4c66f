"""Many different schemas, one after the other, each with a short text: resident memory stays flat.

    python benchmarks/grammars/memory.py [--schemas 10000] [--max-mib 64]

Schemas have names, patterns, bounds and nesting of their own, and one in ten is an array of
different items. Printed now and then: resident memory, what the compiler counts, and how many
grammars it keeps. Exit code 1 if the mean of the last third is over that of the second third by
more than ``--max-growth`` MiB.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from typing import Any

import numpy as np

from ramet.grammars import GrammarCompiler, JsonSchema
from ramet.runtime.engine.grammars.grammar_vocabulary import grammar_vocabulary
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.model.load import open_model
from ramet.runtime.tokenizer import read_tokenizer

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE_BYTES / 2**20


def some_schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """A random schema; hardly one comes twice."""
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6))
    match rng.randrange(6 if depth < 3 else 4):
        case 0:
            low = rng.randrange(1000)
            return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(1, 10**6)}
        case 1:
            return {"type": "string", "pattern": f"^{word}[a-z]{{1,{rng.randrange(2, 20)}}}$"}
        case 2:
            return {"type": "string", "maxLength": rng.randrange(1, 200)}
        case 3:
            return {"enum": [word, word[::-1], rng.random()]}
        case 4:
            unique = rng.random() < 0.3
            return {"type": "array", "items": some_schema(rng, depth + 1), "uniqueItems": unique}
    names = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(rng.randrange(1, 8))]
    properties = {name: some_schema(rng, depth + 1) for name in names}
    closed = rng.random() < 0.5
    return {
        "type": "object", "properties": properties, "required": sorted(properties)[:2],
        "additionalProperties": not closed,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--tokens", type=int, default=40, help="of each text at most")
    parser.add_argument("--max-mib", type=int, default=64, help="the compiler's bound on memory")
    parser.add_argument("--max-growth", type=float, default=16, help="MiB")
    args = parser.parse_args()
    tokenizer = read_tokenizer(open_model(locate_model("smollm2")))
    vocab = grammar_vocabulary(tokenizer, tokenizer.vocab_size)
    compiler = GrammarCompiler(vocab, max_bytes=args.max_mib << 20)
    compiler.warm()
    rng = random.Random(0)
    row = np.zeros(vocab.num_words, np.int32)
    resident: list[float] = []
    for number in range(args.schemas):
        matcher = compiler.compile(JsonSchema(some_schema(rng))).matcher()
        for _ in range(args.tokens):
            matcher.fill_mask(row)
            ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
            if not matcher.accept(int(rng.choice(ids))) or matcher.is_finished:
                break
        resident.append(resident_mib())
        if (number + 1) % max(1, args.schemas // 20) == 0:
            stats = compiler.stats()
            print(
                f"{number + 1} schemas: {resident[-1]:.0f} MiB resident, "
                f"{stats.num_bytes >> 20} counted, {stats.num_grammars} grammars kept",
                flush=True,
            )
    third = args.schemas // 3
    growth = float(np.mean(resident[-third:]) - np.mean(resident[third : 2 * third]))
    print(f"growth from the second third to the last: {growth:.1f} MiB")
    return int(growth > args.max_growth)


if __name__ == "__main__":
    sys.exit(main())
