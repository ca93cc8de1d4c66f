"""A parser for GBNF, the grammar notation of llama.cpp.

Rules are ``name ::= ...`` over strings, character classes, ``.``, groups, ``|`` and the
quantifiers ``* + ? {m} {m,} {m,n}``; ``#`` begins a comment. A rule ends where the next begins.
"""

from __future__ import annotations

import re
from typing import NoReturn

from ramet.grammars.errors import ConstraintError
from ramet.grammars.regular import characters, literal
from ramet.grammars.regular.automata.utf8 import ALL, negated, normalised

from .ast import Alternatives, Call, Expression, Repeat, Rules, Terminal, alternatives, sequence

_MAX_DEPTH = 100
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_DEFINITION = re.compile(r"([A-Za-z0-9_-]+)[ \t]*::=")
_BOUNDS = re.compile(r"\{[ \t]*([0-9]{1,9})[ \t]*(?:(,)[ \t]*([0-9]{1,9})?[ \t]*)?\}")
_ESCAPES = {"n": 10, "r": 13, "t": 9}
_HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}


def parse_gbnf(text: str, start: str | None = None) -> Rules:
    """The grammar that a GBNF text describes; it starts with ``root`` by default.

    Raises:
        ConstraintError: at ``offset n`` of the text.
    """
    return _Parser(text).parse(start or "root")


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def fail(self, reason: str, keyword: str = "ebnf", at: int | None = None) -> NoReturn:
        raise ConstraintError(f"offset {self.at if at is None else at}", keyword, reason)

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        assert found
        self.at = found.end()

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def parse(self, start: str) -> Rules:
        rules: dict[str, Expression] = {}
        self.space()
        while self.at < len(self.text):
            begin = self.at
            definition = _DEFINITION.match(self.text, self.at)
            if definition is None:
                self.fail("expected a rule: name ::= ...")
            self.at = definition.end()
            name = definition.group(1)
            if name in rules:
                self.fail(f"the rule {name!r} is defined twice", name, begin)
            rules[name] = self.options()
            if self.peek() == ")":
                self.fail("unbalanced parenthesis")
        return Rules(rules, start)

    def options(self) -> Expression:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail("groups nest too deeply")
        found = [self.branch()]
        while self.peek() == "|":
            self.at += 1
            found.append(self.branch())
        self.depth -= 1
        return alternatives(found)

    def branch(self) -> Expression:
        parts: list[Expression] = []
        while True:
            self.space()
            if self.peek() in ("", "|", ")") or _DEFINITION.match(self.text, self.at):
                return sequence(parts)
            parts.append(self.quantified(self.atom()))

    def quantified(self, part: Expression) -> Expression:
        while True:
            # Quantifiers may stand apart from what they repeat, but not on the next line.
            while self.peek() in (" ", "\t"):
                self.at += 1
            bounds: tuple[int, int | None]
            match self.peek():
                case "*":
                    bounds = (0, None)
                case "+":
                    bounds = (1, None)
                case "?":
                    bounds = (0, 1)
                case "{":
                    found = _BOUNDS.match(self.text, self.at)
                    if found is None:
                        self.fail("a bad quantifier", "quantifier")
                    low, comma, high = found.groups()
                    bounds = (int(low), (int(high) if high else None) if comma else int(low))
                    if bounds[1] is not None and bounds[1] < bounds[0]:
                        self.fail("the bounds are out of order", "quantifier")
                    self.at = found.end() - 1
                case _:
                    return part
            self.at += 1
            part = Repeat(part, *bounds)

    def atom(self) -> Expression:
        begin = self.at
        c = self.peek()
        if c == '"':
            return self.string()
        if c == "[":
            return self.char_class()
        if c == ".":
            self.at += 1
            return Terminal(characters(ALL))
        if c == "(":
            self.at += 1
            inner = self.options()
            if self.peek() != ")":
                self.fail("a parenthesis is not closed", "group", begin)
            self.at += 1
            return inner
        if c in "<!":
            self.fail("tokens in a grammar are not supported", "token")
        name = _NAME.match(self.text, self.at)
        if name is None:
            self.fail(f"unexpected character {c!r}")
        self.at = name.end()
        return Call(name.group(), begin)

    def string(self) -> Expression:
        begin = self.at
        self.at += 1
        text: list[str] = []
        while self.peek() != '"':
            if not self.peek():
                self.fail("a string is not closed", "string", begin)
            text.append(chr(self.character()))
        self.at += 1
        if any(0xD800 <= ord(c) < 0xE000 for c in text):
            self.fail("a lone surrogate is not text", "string", begin)
        return Terminal(literal("".join(text)))

    def char_class(self) -> Expression:
        begin = self.at
        self.at += 1
        inverted = self.peek() == "^"
        self.at += inverted
        ranges: list[tuple[int, int]] = []
        while self.peek() != "]":
            if not self.peek():
                self.fail("a character class is not closed", "class", begin)
            low = high = self.character()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.character()
            if high < low:
                self.fail("a range is out of order", "class")
            ranges.append((low, high))
        self.at += 1
        found = normalised(ranges)
        language = characters(negated(found) if inverted else found)
        return Alternatives(()) if language.is_empty else Terminal(language)

    def character(self) -> int:
        """One character, perhaps escaped, as a code point."""
        begin = self.at
        c = self.text[self.at]
        self.at += 1
        if c != "\\":
            return ord(c)
        c = self.peek()
        self.at += 1
        if c in _ESCAPES and c:
            return _ESCAPES[c]
        if c in _HEX_LENGTHS and c:
            digits = self.text[self.at : self.at + _HEX_LENGTHS[c]]
            if not re.fullmatch(f"[0-9A-Fa-f]{{{_HEX_LENGTHS[c]}}}", digits):
                self.fail("an incomplete hexadecimal escape", "escape", begin)
            self.at += len(digits)
            if int(digits, 16) > 0x10FFFF:
                self.fail("no such code point", "escape", begin)
            return int(digits, 16)
        if not c or c.isalnum():
            self.fail(f"unknown escape \\{c}", "escape", begin)
        return ord(c)
