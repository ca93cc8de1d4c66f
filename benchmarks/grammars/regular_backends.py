"""Token masks of regexes: Ramet's own automata compared with an outlines-core index.

    python benchmarks/grammars/regular_backends.py [--model NAME]

For each pattern, in one process and on one thread: the time to compile it, the median time of a
mask when the same text is masked again (a pattern in constant use), and the time until the first
text's masks are complete, compilation included. Milliseconds and microseconds of CPU time.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from ramet.grammars import ConstraintError, GrammarCompiler, Regex, Vocabulary
from ramet.runtime.engine.grammars.grammar_vocabulary import grammar_vocabulary
from ramet.runtime.model.files.gguf import GgufFile
from ramet.runtime.model.files.locate import locate_model
from ramet.runtime.tokenizer import Tokenizer, read_tokenizer

PATTERNS = {
    "[0-9]{3}-[0-9]{4}": "555-0142",
    "(yes|no|maybe)": "maybe",
    "[A-Z]{2}[0-9]{6}": "AB123456",
    "[a-z]+(_[a-z0-9]+)*": "some_snake_case_name",
    "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z": "2026-01-31T12:30:00Z",
    "[^\n]{0,200}": "A sentence of plain words, as long as most answers in one line are.",
}
_NUM_REPEATS = 20

clock = time.thread_time


def measure(compiler: GrammarCompiler, pattern: str, ids: list[int]) -> tuple[float, float, float]:
    """Seconds to compile, of a mask in constant use, and up to the first text's last mask."""
    row = np.zeros(compiler.vocab.num_words, np.int32)
    begin = clock()
    grammar = compiler.compile(Regex(pattern))
    compiled = clock() - begin
    times: list[float] = []
    first = 0.0
    for repeat in range(_NUM_REPEATS):
        matcher = grammar.matcher()
        for token_id in ids:
            start = clock()
            matcher.fill_mask(row)
            if repeat:
                times.append(clock() - start)
            assert matcher.accept(token_id)
        if not repeat:
            first = clock() - begin
    return compiled, statistics.median(times), first


def load(model: str) -> tuple[Tokenizer, Vocabulary]:
    file = GgufFile(locate_model(model))
    tokenizer = read_tokenizer(file)
    return tokenizer, grammar_vocabulary(tokenizer, len(tokenizer.vocabulary))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2")
    tokenizer, vocab = load(parser.parse_args().model)
    print(f"{'pattern':56} {'backend':14} {'compile ms':>10} {'mask us':>8} {'first text ms':>13}")
    for backend in ("native", "outlines-core"):
        compiler = GrammarCompiler(vocab, regular_backend=backend)
        compiler.compile(Regex("warm|up"))
        for pattern, text in PATTERNS.items():
            try:
                figures = measure(compiler, pattern, tokenizer.encode(text))
            except ConstraintError as error:
                print(f"{pattern!r:56} {backend:14} refused: {error.reason}")
                continue
            compiled, mask, first = figures
            print(
                f"{pattern!r:56} {backend:14} {1e3 * compiled:10.2f} {1e6 * mask:8.2f}"
                f" {1e3 * first:13.2f}"
            )


if __name__ == "__main__":
    main()
