"""Ramet in a grammar bench that runs several engines side by side (see grammars.md).

The bench executes this file as a plug-in: it supplies ``Adapter``, ``Matcher``, ``NpMask`` and
``ADAPTERS``.
"""

# ruff: noqa: F821
# mypy: ignore-errors

from ramet.grammars import CompileLimits, Ebnf, GrammarCompiler, JsonSchema, Regex, Vocabulary


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
        self.buffer = NpMask(len(self.vocab.tokens))

    def compile(self, kind, grammar):
        if kind == "json_schema":
            return self.compiler.compile(JsonSchema(grammar))
        if kind == "regex":
            return self.compiler.compile(Regex(grammar))
        return self.compiler.compile(Ebnf(grammar))

    def matcher(self, compiled):
        return RametMatcher(compiled.matcher(), self.buffer)


ADAPTERS["ramet"] = RametAdapter
