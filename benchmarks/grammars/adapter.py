"""Ramet in a grammar bench that runs several engines side by side (see README.md).

The bench executes this file as a plug-in: it supplies ``Adapter``, ``Matcher``, ``NpMask``,
``ADAPTERS`` and ``DATA``, the folder with the official suite, whose remote documents are given to
the schemas that refer to them. So are the meta-schemas.
"""

# ruff: noqa: F821
# mypy: ignore-errors

import json
from functools import cache
from pathlib import Path

from jsonschema_specifications import REGISTRY

from ramet.grammars import CompileLimits, Ebnf, GrammarCompiler, JsonSchema, Regex, Vocabulary


@cache
def remotes():
    folder = Path(DATA) / "JSON-Schema-Test-Suite" / "remotes"
    return {
        f"http://localhost:1234/{path.relative_to(folder).as_posix()}": json.loads(path.read_text())
        for path in folder.rglob("*.json")
        if path.relative_to(folder).parts[0] not in ("draft3", "draft4", "draft6", "v1")
    }


def documents_of(schema):
    text = json.dumps(schema)
    found = {}
    if '"$ref"' in text or '"$dynamicRef"' in text:
        if "localhost:1234" in text:
            found.update(remotes())
        if "json-schema.org" in text.replace('"$schema": "http', ""):
            found.update({uri: REGISTRY.contents(uri) for uri in REGISTRY})
    return found


class RametMatcher(Matcher):
    def __init__(self, matcher, buffer):
        self.matcher = matcher
        self.buffer = buffer
        self.row = buffer.a.view("int32")

    def mask(self):
        self.matcher.fill_mask(self.row)

    def allowed(self, token_id):
        return self.buffer.bit(token_id)

    def advance(self, token_id):
        return self.matcher.accept(token_id)

    def can_end(self):
        return self.matcher.is_accepting


class RametAdapter(Adapter):
    package = "ramet"

    def setup(self):
        self.compiler = GrammarCompiler(
            Vocabulary.from_tokens(self.vocab.tokens, {self.vocab.eos}), CompileLimits()
        )
        self.compiler.warm()
        self.buffer = NpMask(len(self.vocab.tokens))

    def compile(self, kind, grammar):
        if kind == "json_schema":
            return self.compiler.compile(JsonSchema(grammar, documents=documents_of(grammar)))
        if kind == "regex":
            return self.compiler.compile(Regex(grammar))
        return self.compiler.compile(Ebnf(grammar))

    def matcher(self, compiled):
        return RametMatcher(compiled.matcher(), self.buffer)


ADAPTERS["ramet"] = RametAdapter
