"""CPU time of masks, advances and compilation over llguidance's, schema by schema.

    python benchmarks/grammars/against_llguidance.py --bench DIR [--every N] [--vocab smol|o200k]
    python benchmarks/grammars/against_llguidance.py --bench DIR --ebnf

DIR is the folder of the grammar bench (``bench_grammars.py`` and its data). Times are CPU time of
the thread, so that neighbours on the machine matter less than for a clock on the wall; both engines
see the same tokens in the same process. Only schemas that both compile count. The bench says where
the larger vocabulary is found. ``--ebnf`` measures the grammars of ``ebnf_grammars.py`` instead:
each one's text as the first that its masks are for, and once more.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib.util
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ebnf_grammars import GRAMMARS

from ramet.grammars import Ebnf, GrammarCompiler, JsonSchema, Vocabulary

clock = time.thread_time


class Times:
    """Seconds of one engine."""

    def __init__(self) -> None:
        self.compile: list[float] = []
        self.mask: list[float] = []
        self.advance: list[float] = []

    def follow(
        self, ids: list[int], mask: Callable[[], object], advance: Callable[[int], object]
    ) -> bool:
        """Time a text's tokens, up to one that is refused, if any."""
        for token_id in ids:
            begin = clock()
            mask()
            middle = clock()
            is_allowed = advance(token_id)
            self.advance.append(clock() - middle)
            self.mask.append(middle - begin)
            if not is_allowed:
                return False
        return True


def load(folder: Path, every: int) -> list[dict[str, Any]]:
    wanted = set(json.loads((folder / "data" / "sample-dev.json").read_text())[::every])
    with gzip.open(folder / "data" / "jsonschemabench-dev.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    return [row for row in rows if row["id"] in wanted]


def measure_ebnf(tokens: Any, other: Any, compiler: GrammarCompiler) -> None:
    """Print a row for each grammar: Ramet's time over llguidance's."""
    row = np.zeros(compiler.vocab.num_words, np.int32)
    compiler.compile(Ebnf('root ::= "a" root | "b"'))
    for name, (grammar, text) in GRAMMARS.items():
        gc.collect()
        begin = clock()
        compiled = compiler.compile(Ebnf(grammar))
        mine = clock() - begin
        begin = clock()
        # The converter to its dialect takes one rule a line.
        theirs_compiled = other.compile("ebnf", re.sub("\n +", " ", grammar))
        theirs = clock() - begin
        shown = [f"compile {mine / theirs:.2f}"]
        ids = tokens.encode(text)
        for what in ("first", "again"):
            ours, others = Times(), Times()
            matcher, their_matcher = compiled.matcher(), other.matcher(theirs_compiled)
            assert ours.follow(ids, lambda m=matcher: m.fill_mask(row), matcher.accept)
            if not others.follow(ids, their_matcher.mask, their_matcher.advance):
                shown.append("llguidance refuses the text")
                break
            for key, of in (("mean", np.mean), ("p99", lambda times: np.percentile(times, 99))):
                shown.append(f"{what} {key} {of(ours.mask) / of(others.mask):.2f}")
        print(f"{name:10}", ", ".join(shown))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, required=True)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--vocab", default="smol")
    parser.add_argument("--ebnf", action="store_true")
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("bench", args.bench / "bench_grammars.py")
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    tokens = bench.Vocab(args.vocab)
    other = bench.Llguidance(tokens)
    vocab = Vocabulary.from_tokens(tokens.tokens, {tokens.eos})
    compiler = GrammarCompiler(vocab)
    row = np.zeros(vocab.num_words, np.int32)
    compiler.warm()
    compiler.compile(JsonSchema({"properties": {"warm": {"type": "integer"}}}))
    if args.ebnf:
        measure_ebnf(tokens, other, compiler)
        return
    ours, theirs = Times(), Times()
    gc.collect()
    gc.freeze()
    gc.disable()
    for case in load(args.bench, args.every):
        begin = clock()
        try:
            compiled = other.compile("json_schema", case["schema"])
        except ValueError:
            continue
        theirs.compile.append(clock() - begin)
        gc.collect()
        begin = clock()
        grammar = compiler.compile(JsonSchema(case["schema"]))
        ours.compile.append(clock() - begin)
        for test in case["tests"]:
            if test["valid"]:
                ids = tokens.encode(json.dumps(test["data"], ensure_ascii=False))
                their_matcher = other.matcher(compiled)
                theirs.follow(ids, their_matcher.mask, their_matcher.advance)
                matcher = grammar.matcher()
                ours.follow(ids, lambda m=matcher: m.fill_mask(row), matcher.accept)
    print(f"{len(ours.compile)} schemas, {len(ours.mask)} masks; Ramet's time over llguidance's")
    for name in ("compile", "mask", "advance"):
        mine, his = np.array(getattr(ours, name)), np.array(getattr(theirs, name))
        ratios = {"mean": mine.mean() / his.mean()} | {
            f"p{p}": np.percentile(mine, p) / np.percentile(his, p) for p in (50, 90, 99)
        }
        print(f"{name:8}", ", ".join(f"{k} {v:.2f}" for k, v in ratios.items()))


if __name__ == "__main__":
    main()
