"""Hostile bodies: mutations of sound ones, and constraints that are meant to take too long."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from honest import HONEST, Body

_LEAVES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2**31, 2**63, -(2**70), 1e308, -0.0, "", "a", "\0", "\ud7ff\u202e"),
    *("<|im_end|>", "{{ 7 * 7 }}", "a" * 3000, [], {}, [[[[]]]], {"a": {"b": None}}, ["x"] * 300),
)
_NAMES = ("n", "stop", "logprobs", "seed", "max_tokens", "stream", "tools", "deadline_s", "ramet",
          "logit_bias", "bad_words", "response_format", "prompt_logprobs", "top_k")  # fmt: skip


def hostile(rng: random.Random) -> tuple[str, bytes]:
    """A path and a raw body."""
    path, body = rng.choice(HONEST)
    if rng.random() < 0.35:
        path, body = rng.choice(BOMBS)(rng)
    if rng.random() < 0.6:
        body = _mutated(copy.deepcopy(body), rng)
    raw = json.dumps(body).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        raw = _damaged(raw, rng)
    return path, raw


def _mutated(body: Body, rng: random.Random) -> Body:
    for _ in range(rng.randint(1, 3)):
        places = list(_places(body))
        kind = rng.random()
        if kind < 0.25 or not places:
            body[rng.choice(_NAMES)] = copy.deepcopy(rng.choice(_LEAVES))
            continue
        parent, key = rng.choice(places)
        if kind < 0.45:
            del parent[key]
        elif kind < 0.85:
            parent[key] = copy.deepcopy(rng.choice(_LEAVES))
        else:
            parent[key] = copy.deepcopy(rng.choice(places)[0])
    return body


def _places(value: Any) -> Any:
    """Every container with each of its keys, at any depth."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _damaged(raw: bytes, rng: random.Random) -> bytes:
    data = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        match rng.randrange(3):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                del data[at : at + rng.randint(1, 20)]
                data += b" "
            case _:
                data[at:at] = data[max(0, at - 30) : at]
    return bytes(data)


# -- bombs -----------------------------------------------------------------------------------------


def _schema(schema: Any) -> tuple[str, Body]:
    form = {"type": "json_schema", "json_schema": {"name": "bomb", "schema": schema}}
    messages = [{"role": "user", "content": "x"}]
    return "/v1/chat/completions", {
        "messages": messages, "response_format": form, "max_tokens": 12, "deadline_s": 20,
    }  # fmt: skip


def _completion(**fields: Any) -> tuple[str, Body]:
    return "/v1/completions", {"prompt": "x", "max_tokens": 12, "deadline_s": 20, **fields}


def schema_bomb(rng: random.Random) -> tuple[str, Body]:
    """Products, subsets, large bounds, recursion, long alternatives."""
    size = rng.choice([3, 12, 40])
    word = {"type": "string", "pattern": f"^(a|b)*a(a|b){{{size}}}$"}
    text = {"type": "string", "maxLength": 100 * size}
    schemas: list[Any] = [
        word,
        {"type": "array", "uniqueItems": True, "items": text, "minItems": size},
        {"type": "array", "uniqueItems": True, "items": {"enum": list(range(size))}},
        {"allOf": [{"anyOf": [{"required": [f"p{i}{j}"]} for j in range(4)]} for i in range(size)]},
        {"type": "object", "properties": {f"p{i}": word for i in range(size)}},
        {"type": "object", "patternProperties": {f"^.*{chr(97 + i % 26)}.{{{i}}}$": {"const": i}
                                                 for i in range(size)}},
        {"enum": [f"{i:x}" * 9 for i in range(100 * size)]},
        {"multipleOf": 10**size + 7, "type": "integer"},
        {"not": {"type": "object", "properties": {f"p{i}": {"not": word} for i in range(size)}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"type": "array", "items": {"$ref": "#"}},
                                                         {"$ref": "#/$defs/b"}]},
                                        "b": {"oneOf": [{"$ref": "#/$defs/a"}, word]}}},
        {"type": "object", "dependentRequired": {f"p{i}": [f"p{(i * 7 + 1) % size}"]
                                                 for i in range(size)}},
        {"type": "array", "contains": word, "minContains": size, "maxContains": 2 * size},
    ]  # fmt: skip
    schema = rng.choice(schemas)
    for _ in range(rng.choice([0, 0, 5, 60])):
        schema = {"allOf": [schema, {"type": "object", "properties": {"a": schema}}]}
        if len(json.dumps(schema)) > 200_000:
            break
    return _schema(schema)


def regex_bomb(rng: random.Random) -> tuple[str, Body]:
    """Counted repetitions, and automata whose determinisation explodes."""
    size = rng.choice([5, 18, 60])
    patterns = [
        f"((a{{1,{size}}}){{1,{size}}}){{1,{size}}}",
        f"(a?){{{size}}}a{{{size}}}",
        f"(a|b)*a(a|b){{{size}}}",
        ".*" * size + "=" + ".*" * size,
        f"[^\\x00-\\x{size:02x}]{{{100 * size}}}",
        "|".join(f"{i:b}x*" for i in range(40 * size)),
        "(" * size + "a" + ")*" * size,
        f"(?=.*a)(?!.*b{{{size}}}).*",
        f"\\p{{L}}{{{size},}}(\\w\\d){{,{size}}}",
    ]
    return _completion(guided_regex=rng.choice(patterns))


def grammar_bomb(rng: random.Random) -> tuple[str, Body]:
    """Ambiguity, left recursion, chains, empty repetitions."""
    size = rng.choice([3, 30, 400])
    chain = "\n".join(f"r{i} ::= r{i + 1} | r{i + 1} r{i + 1} | {chr(34)}a{chr(34)}"
                      for i in range(size))  # fmt: skip
    grammars = [
        'root ::= root root | "a" | ""',
        'root ::= (("a"? "b"?)* ("a"* "b"*)*)*',
        f'root ::= r0\n{chain}\nr{size} ::= "b"',
        "root ::= " + " ".join(f'("{chr(97 + i % 26)}" | [a-z])?' for i in range(size)),
        'root ::= "(" root ")" | "[" root "]" | root "+" root | [0-9]+',
        f'root ::= ("a"{{1,{size}}} "b"{{1,{size}}}){{1,{size}}}',
        "start: " + "|".join(f"/a{{{i}}}b/" for i in range(size)),
    ]
    return _completion(guided_grammar=rng.choice(grammars))


def tag_bomb(rng: random.Random) -> tuple[str, Body]:
    """Structural tags: many, nested, with common prefixes, with bombs for contents."""
    size = rng.choice([2, 20, 300])
    free: Body = {"type": "any_text"}
    deep: Body = {"type": "const_string", "value": "x"}
    for i in range(min(size, 48)):
        kind = rng.choice(["star", "plus", "optional", "sequence", "or"])
        inner = {"elements": [deep, free][: 1 + i % 2]} if kind in ("sequence", "or") else {}
        deep = {"type": kind, **(inner or {"content": deep})}
    contents: list[Body] = [
        free,
        {"type": "any_text", "max_tokens": size},
        {"type": "regex", "pattern": f"(a|b)*a(a|b){{{min(size, 12)}}}"},
        {"type": "json_schema", "json_schema": {"type": "array", "uniqueItems": True}},
        {"type": "grammar", "grammar": 'root ::= root root | "a"'},
        deep,
    ]
    contents = rng.sample(contents, 2)  # of all kinds, one would be refused immediately
    tags = [
        {"type": "tag", "begin": "<" * (i % 40 + 1) + f"{i:x}>", "content": rng.choice(contents),
         "end": rng.choice(["</a>", "<", ">" * (i % 9 + 1)])}
        for i in range(size)
    ]  # fmt: skip
    formats: list[Body] = [
        {"type": "triggered_tags", "triggers": ["<"], "tags": tags},
        {"type": "triggered_tags", "triggers": ["<", "<<", "<<<"], "tags": tags,
         "at_least_one": True, "stop_after_first": rng.random() < 0.5},
        {"type": "tags_with_separator", "tags": tags, "separator": "<"},
        {"type": "sequence", "elements": [free, deep] * min(size, 40)},
        {"type": "repeat", "content": {"type": "or", "elements": tags}, "min": size,
         "max": size * size},
        deep,
    ]  # fmt: skip
    form = {"type": "structural_tag", "format": rng.choice(formats)}
    return _completion(structured_outputs={"structural_tag": json.dumps(form)})


def nested(depth: int) -> Any:
    """Lists in lists; the server's parser bounds their depth."""
    value: Any = "x"
    for _ in range(min(depth, 200)):  # what mutations can copy
        value = [value]
    return value


def wide_bomb(rng: random.Random) -> tuple[str, Body]:
    """Many choices, long prompts, many stops, many tools."""
    size = rng.choice([8, 64, 128])
    tool = {"type": "function", "function": {"name": "t", "parameters": {"type": "object"}}}
    tools = [{**tool, "function": {**tool["function"], "name": f"t{i}"}} for i in range(size)]
    chat: Body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 20}
    bodies: list[tuple[str, Body]] = [
        _completion(n=size, max_tokens=60),
        _completion(prompt="word " * 50 * size),
        _completion(prompt=["a"] * size, stop=[str(i) for i in range(size)]),
        _completion(bad_words=[f"w{i}" for i in range(size)], logprobs=5),
        _completion(prompt="word " * 100, n=size, max_tokens=60),
        _completion(logit_bias={str(i): 1.0 for i in range(40 * size)}, stop=["\0" * size] * size),
        ("/v1/chat/completions", {**chat, "tools": tools * 20, "tool_choice": "auto"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": nested(size)}]}),
        ("/v1/chat/completions", {**chat, "tools": tools, "tool_choice": "required"}),
        ("/v1/embeddings", {"input": ["word " * 20] * size}),
        ("/v1/grammar/check", {"guided_regex": "(a|b)*a(a|b){30}", "text": "ab" * size}),
    ]
    return rng.choice(bodies)


BOMBS: tuple[Callable[[random.Random], tuple[str, Body]], ...] = (
    schema_bomb, regex_bomb, grammar_bomb, tag_bomb, wide_bomb,
)  # fmt: skip
