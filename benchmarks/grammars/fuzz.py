"""Fuzzes the compiler and masks with malformed, odd and large constraints.

    python benchmarks/grammars/fuzz.py --seconds 3600 --seed 1

Texts are seeds that are cut, joined and mutated. Promised of each: it compiles or is refused by a
``ConstraintError``, within the time limit; what compiles allows some first token, and a walk of
allowed tokens never meets a state that allows none; a mask keeps within its budget or is left to
the background; memory stays bounded. One constraint in ten is a bomb, with a longer walk. Ends with
exit code 1 on the first broken promise, having printed the constraint.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections import Counter

import numpy as np

from ramet.grammars import (
    AnyOf,
    Choice,
    CompileLimits,
    Constraint,
    ConstraintError,
    Ebnf,
    FixedText,
    FreeText,
    GrammarCompiler,
    JsonSchema,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
    Vocabulary,
)
from ramet.grammars.regular import RegularLimits

REGEXES = [
    r"^(?!.*\d{3})[\w.+-]+@(?:[a-z]+\.)+[a-z]{2,}$", r"(?i)stra(?:ß|ss)e\b", r"(a|b)*a(a|b){6}",
    r"(?<=a)b(?!c)|\p{Lu}+[^\s\S]?", r"[\u0000-\uffff]{0,40}", r"(?:(?=a)a|b){2,9}$",
    r"^\s*(?P<x>\d+)(?:,\d+)*?$", r"\x41\101\N{DIGIT ONE}[]a-]", "(" * 30 + "a" + ")*" * 30,
]  # fmt: skip
GRAMMARS = [
    'root ::= root "+" root | "(" root ")" | [0-9]+', 'root ::= x{2,5} | "" x\nx ::= "a" x | root?',
    'start: "a" start "b" | x ~ 1..3\n?x: "c" | /d+/i -> y\n%ignore " "',
    'start: l{A, ","}\nl{x, s}: x (s x)*\nA: /[a-z]/+\n%import common (WS, NUMBER)\n%ignore WS',
]  # fmt: skip
SCHEMAS = [
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
    {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "number", "multipleOf": 0.5}]},
    {"type": "array", "items": {"$ref": "#"}, "contains": {"const": 1}, "uniqueItems": True},
    {"not": {"enum": [1, "x"]}, "if": {"type": "string"}, "then": {"format": "date"}},
    {"patternProperties": {"^x": False}, "minProperties": 2, "propertyNames": {"maxLength": 3}},
]  # fmt: skip
SCALARS = [
    {"type": "integer"}, {"type": "number"}, {"type": "string", "maxLength": 40},
    {"type": "integer", "minimum": 0, "maximum": 9}, {"type": ["integer", "string"]}, True,
    {"type": "string", "pattern": "^[a-z ]{1,40}$"}, {"enum": list(range(300))},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
    {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
     "required": ["id"], "additionalProperties": False},
    {"type": "object", "properties": {k: {"enum": [1, 2]} for k in "abc"},
     "anyOf": [{"required": ["a"]}, {"required": ["b", "c"]}], "additionalProperties": False},
]  # fmt: skip
"""Items of which arrays without equal items once held everybody up, or ended in an error."""
BOMBS: list[Constraint] = [
    *(JsonSchema({"type": "array", "uniqueItems": True, "items": s}, whitespace="none")
      for s in SCALARS),
    JsonSchema({"$defs": {"n": {"uniqueItems": True, "items": {"$ref": "#/$defs/n"}}},
                "$ref": "#/$defs/n", "type": "array"}),
    Ebnf("root ::= " + " | ".join(f'"{c}" root "{c}"' for c in "abcdefghijklm") + ' | ""'),
    Ebnf("root ::= (r0 | r1)*\n" + "\n".join(
        f'r{i} ::= "a{i}" r{(i * 7 + 1) % 99} | [a-z]{{1,9}} r{(i * 3 + 2) % 99}?'
        for i in range(99))),
    JsonSchema({"enum": [f"{i * 7919 % 99991:05}{'ab'[i % 2] * 25}" for i in range(5000)]}),
    Choice(tuple(f"{i * 7919 % 99991:05}{'ab'[i % 2] * 15}{i}" for i in range(20000))),
    Regex(r"(\w+ ){1,300}\w+"), Regex(r"(\p{L}|\p{N}|\p{P}){0,1000}"),
    Regex("".join(f"(?=.{{1,60}}{c})" for c in "abcdefg") + ".*"),
    JsonSchema({"type": "object", "patternProperties": {
        f"x{i}": {"type": "integer", "minimum": i} for i in range(70)}}),
    JsonSchema({"type": "object", "unevaluatedProperties": False, "allOf": [
        {"if": {"required": [f"a{i}"]}, "then": {"properties": {f"{c}{i}": True for c in "ab"}}}
        for i in range(20)]}),
    JsonSchema({"multipleOf": 123456789}),
    JsonSchema({"oneOf": [{"type": "integer", "multipleOf": n} for n in (2, 3, 5, 7, 11, 13)]}),
    JsonSchema({"type": "object", "allOf": [
        {"if": {"properties": {f"a{i}": {"const": 1}}}, "then": {"required": [f"b{i}"]}}
        for i in range(30)]}),
]  # fmt: skip
BUDGET_S, SLACK_S = 0.005, 0.045
"""How long a mask may take in a step, and CPU time that one piece of work may take beyond that."""


def mutated(text: str, others: list[str], rng: random.Random) -> str:
    """A text with a few pieces cut out, doubled, swapped or brought in from others."""
    for _ in range(rng.randrange(4)):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        piece = text[i:j]
        other = rng.choice(others)
        k = rng.randrange(len(other) + 1)
        match rng.randrange(4):
            case 0:
                text = text[:i] + text[j:]
            case 1:
                text = text[:j] + piece + text[j:]
            case 2:
                text = text[:i] + other[k : k + 8] + text[i:]
            case _:
                text = text[:i] + rng.choice("()[]{}|*+?\\^$.\"'/:=-<>,0aé\n") + text[i + 1 :]
        text = text[:400]
    return text


def mutated_schema(schema: object, rng: random.Random, depth: int = 0) -> object:
    """A schema with values replaced, dropped, or moved to where they don't belong."""
    if depth > 4:
        return True
    if isinstance(schema, dict):
        found = {
            k: mutated_schema(v, rng, depth + 1) for k, v in schema.items() if rng.random() < 0.9
        }
        if rng.random() < 0.2:
            found |= rng.choice(SCHEMAS)
        return found
    if isinstance(schema, list):
        return [mutated_schema(item, rng, depth + 1) for item in schema]
    if rng.random() < 0.15:
        return rng.choice([None, -1, 1e300, "", "a(", [], {}, True, "#/nope", rng.choice(SCHEMAS)])
    return schema


def some_part(rng: random.Random, depth: int = 0) -> Part:
    """A random part of a structural tag."""
    word = mutated("<tool_call>", GRAMMARS, rng)[:12]
    kind = rng.randrange(6 if depth > 2 else 10)
    if kind < 6:
        return [
            FixedText(word),
            FreeText((word,)),
            Regex(mutated(rng.choice(REGEXES), REGEXES, rng)),
            Ebnf(mutated(rng.choice(GRAMMARS), GRAMMARS, rng)),
            JsonSchema(mutated_schema(rng.choice(SCHEMAS), rng)),
            FreeText((), rng.randrange(3), rng.choice([None, 0, 2, 5])),
        ][kind]
    inner = tuple(some_part(rng, depth + 1) for _ in range(rng.randrange(3)))
    tag = Tag(word, some_part(rng, depth + 1), "</>")
    return [Series(inner), AnyOf(inner), Repeated(tag, rng.randrange(2), 3), TriggeredTags((tag,))][
        kind - 6
    ]


def some_constraint(rng: random.Random) -> Constraint:
    """A random constraint of any kind."""
    match rng.randrange(4):
        case 0:
            dialect = "ecma" if rng.random() < 0.5 else "python"
            return Regex(mutated(rng.choice(REGEXES), REGEXES, rng), dialect)  # type: ignore[arg-type]
        case 1:
            return Ebnf(mutated(rng.choice(GRAMMARS), GRAMMARS, rng))
        case 2:
            return JsonSchema(mutated_schema(rng.choice(SCHEMAS), rng))
        case _:
            return StructuralTag(some_part(rng))


def check(
    constraint: Constraint, compiler: GrammarCompiler, rng: random.Random, num_tokens: int = 12
) -> str:
    """Compile and walk; what came of it, in a word."""
    try:
        matcher = compiler.compile(constraint).matcher()
        row = np.zeros(compiler.vocab.num_words, np.int32)
        for _ in range(num_tokens):
            begin = time.thread_time()
            is_there = matcher.try_mask(row, BUDGET_S)
            took = time.thread_time() - begin
            assert took < BUDGET_S + SLACK_S, f"a mask held a step up for {took * 1e3:.0f} ms"
            if not is_there:
                matcher.fill_mask_in_background(row)
            ids = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
            assert len(ids), "a dead end"
            assert matcher.accept(int(rng.choice(ids))), "the mask allows what accept does not"
            if matcher.is_finished:
                break
    except ConstraintError as error:
        return type(error).__name__
    return "compiled"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=30, help="CPU seconds for one constraint")
    parser.add_argument("--max-growth", type=int, default=1024, help="MiB of memory after warm-up")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    tokens = [bytes((i,)) for i in range(256)] + [b"ab", b'{"', b'": ', b"<tool", b"12", None]
    vocab = Vocabulary.from_tokens(tokens, {len(tokens) - 1})
    limits = CompileLimits(max_seconds=10, regular=RegularLimits(max_states=10_000))
    compiler = GrammarCompiler(vocab, limits, capacity=8)
    for kind in range(40):  # Compiled code is compiled here.
        check(some_constraint(random.Random(kind)), compiler, rng)
    outcomes: Counter[str] = Counter()
    end = time.monotonic() + args.seconds
    base: int | None = None
    while time.monotonic() < end:
        is_bomb = rng.random() < 0.1
        constraint = rng.choice(BOMBS) if is_bomb else some_constraint(rng)
        begin = time.process_time()
        try:
            outcome = check(constraint, compiler, rng, 200 if is_bomb else 12)
            took = time.process_time() - begin
            assert took < args.limit, f"{took:.0f} s for one constraint"
        except Exception as error:
            print(f"broken promise ({type(error).__name__}: {error}):\n{constraint!r}")
            raise
        outcomes[f"{constraint.kind}: {outcome}"] += 1
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        if sum(outcomes.values()) == 500:
            base = memory
        if base is not None and memory - base > args.max_growth:
            print(f"memory grew from {base} to {memory} MiB")
            return 1
    print(json.dumps(outcomes, indent=2, sort_keys=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
