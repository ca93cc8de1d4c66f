"""Grammars of one compiler share lexemes, and may be compiled and used from many threads."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ramet.grammars import (
    CompileLimits,
    Grammar,
    GrammarCompiler,
    JsonSchema,
    StructuralTag,
    Tag,
    Vocabulary,
    compile_constraint,
)


def schema(seed: int) -> Any:
    """Schemas that have some parts in common."""
    rng = random.Random(seed)
    kinds = [
        {"type": "string", "maxLength": rng.randrange(1, 9)}, {"enum": ["foo", "bar", 12]},
        {"type": "string", "pattern": "^[a-f]*x?$"}, {"type": "array", "items": {"type": "number"}},
        {"type": "object", "properties": {"tag": {"enum": [f"t{seed % 3}", "ab"]}}}, {},
        {"oneOf": [{"type": "string", "format": "date"}, {"type": "integer", "minimum": seed}]},
    ]  # fmt: skip
    names = [f"name{rng.randrange(20)}" for _ in range(5)]
    return {"type": "object", "properties": {n: rng.choice(kinds) for n in names}}


def masks(grammar: Grammar, vocab: Vocabulary, seed: int, allowed_tokens: Any) -> list[Any]:
    """The masks of a random walk."""
    rng = random.Random(seed)
    matcher = grammar.matcher()
    found = []
    for _ in range(60):
        allowed = allowed_tokens(matcher, vocab)
        found.append(allowed)
        choice = sorted(allowed - {0})
        if not choice:
            break
        assert matcher.accept(rng.choice(choice))
    return found


def test_many_threads_see_what_one_sees(vocab: Vocabulary, allowed_tokens: Any) -> None:
    compiler = GrammarCompiler(vocab)
    start = threading.Barrier(6)

    def run(worker: int) -> list[list[Any]]:
        start.wait()
        found = []
        for seed in range(12):
            grammar = compiler.compile(JsonSchema(schema((seed * 5 + worker) % 12)))
            found.append(masks(grammar, vocab, seed, allowed_tokens))
        return found

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(run, range(6)))
    for worker, result in enumerate(results):
        for seed, found in enumerate(result):
            alone = compile_constraint(JsonSchema(schema((seed * 5 + worker) % 12)), vocab)
            assert found == masks(alone, vocab, seed, allowed_tokens)


def test_a_slow_context_holds_no_other_grammar_up(vocab: Vocabulary, allowed_tokens: Any) -> None:
    compiler = GrammarCompiler(vocab)
    slow = compiler.compile(JsonSchema(schema(1)))
    other = compiler.compile(JsonSchema(schema(2)))
    with slow._pushdown.lock, ThreadPoolExecutor(1) as pool:
        found = pool.submit(masks, other, vocab, 5, allowed_tokens).result(timeout=60)
    assert len(found) > 1


def test_one_schema_in_two_places(vocab: Vocabulary) -> None:
    """A lexeme that is installed in two state tables reads each one's own states."""
    names = {"type": "object", "properties": {'a"b': {"type": "integer"}, "é": {"type": "null"}}}
    tag = StructuralTag(Tag("<", JsonSchema(names), ">"))
    compiler = GrammarCompiler(vocab)
    for constraint in (JsonSchema(names), tag, JsonSchema(names, whitespace="none")):
        grammars = compiler.compile(constraint), compile_constraint(constraint, vocab)
        for grammar in (*grammars, *grammars):
            wrap = (lambda t: f"<{t}>") if constraint is tag else (lambda t: t)
            assert grammar.match(wrap(r'{"a\"b":1,"\u00e9":null}'))
            assert not grammar.match(wrap(r'{"a\"b":1,"\u00e9":1}'))
            assert not grammar.match(wrap(r'{"a\"b":1,"a\"b":1}'))


def test_a_grammar_that_has_grown_too_far_is_made_again(vocab: Vocabulary) -> None:
    limits = CompileLimits(max_contexts=800)
    compiler = GrammarCompiler(vocab, limits)
    # Names that may run out are states of their own.
    constraint = JsonSchema({"type": "object", "propertyNames": {"maxLength": 3}})
    grammar = compiler.compile(constraint)
    for i in range(150):
        assert compiler.compile(constraint).match(f'{{"{i}": 1}}')
    assert grammar.num_contexts <= 210
    assert compiler.compile(constraint) is not grammar
    assert grammar.match('{"a": 1}')
