"""The syntax of Lark's grammar notation: a text as definitions, names not yet resolved."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import NoReturn

from ramet.grammars.errors import ConstraintError
from ramet.grammars.regular.regex import parser as regex_parser
from ramet.grammars.regular.regex import syntax
from ramet.grammars.regular.regex.compile import node_dfa

from .lark_common import COMMON
from .lark_tokens import Token, tokenise

_MAX_DEPTH = 100
_OPERATORS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def parse_definitions(text: str, *, narrow: bool = False) -> Source:
    """The definitions of a Lark text; ``narrow`` is as for ``regex_dfa``.

    Raises:
        ConstraintError: at ``offset n`` of the text.
    """
    return _Parser(text, narrow=narrow).parse()


@dataclass(frozen=True)
class Text:
    """A string or a regex, as its syntax tree."""

    node: syntax.Node
    token: Token


@dataclass(frozen=True)
class Name:
    """A rule, a terminal, or a template with arguments."""

    name: str
    arguments: tuple[Tree, ...]
    offset: int


@dataclass(frozen=True)
class Branch:
    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Options:
    options: tuple[Tree, ...]


@dataclass(frozen=True)
class Repeated:
    part: Tree
    minimum: int
    maximum: int | None


Tree = Text | Name | Branch | Options | Repeated


@dataclass(frozen=True)
class Definition:
    parameters: tuple[str, ...]
    body: Tree
    offset: int


@dataclass
class Source:
    """The parsed text, names unresolved."""

    definitions: dict[str, Definition] = field(default_factory=dict)
    ignored: list[Tree] = field(default_factory=list)


class _Parser:
    def __init__(self, text: str, *, narrow: bool = False) -> None:
        self.narrow = narrow
        self.tokens = tokenise(text)
        self.at = 0
        self.depth = 0
        self.source = Source()

    def fail(self, reason: str, keyword: str = "ebnf", token: Token | None = None) -> NoReturn:
        raise ConstraintError(f"offset {(token or self.peek()).offset}", keyword, reason)

    def peek(self, ahead: int = 0) -> Token:
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    def eat(self, text: str) -> bool:
        if self.peek().kind in ("sign", "to", "range") and self.peek().text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.eat(text):
            self.fail(f"expected {text!r}, found {self.peek().text or 'the end'!r}")

    def name(self) -> str:
        token = self.next()
        if token.kind != "name":
            self.fail(f"expected a name, found {token.text or 'the end'!r}", token=token)
        return token.text.lstrip("!?")

    def parse(self) -> Source:
        while self.peek().kind != "end":
            if self.peek().kind == "directive":
                self.directive()
            elif self.peek().kind == "name":
                self.definition()
            else:
                self.fail(f"expected a definition, found {self.peek().text!r}")
        return self.source

    def definition(self, *, override: bool = False, extend: bool = False) -> None:
        token = self.peek()
        name = self.name()
        parameters: list[str] = []
        if self.eat("{"):
            parameters.append(self.name())
            while self.eat(","):
                parameters.append(self.name())
            self.expect("}")
        if self.eat("."):
            self.next()  # A priority, which chooses among readings and changes no membership.
        self.expect(":")
        body = self.options()
        known = self.source.definitions.get(name)
        if known is not None and not override:
            if not extend:
                self.fail(f"{name!r} is defined twice", name, token)
            body = Options((known.body, body))
        self.source.definitions[name] = Definition(tuple(parameters), body, token.offset)

    def directive(self) -> None:
        token = self.next()
        match token.text:
            case "%ignore":
                self.source.ignored.append(self.options())
            case "%import":
                self.imports()
            case "%override":
                self.definition(override=True)
            case "%extend":
                self.definition(extend=True)
            case _:
                self.fail(f"{token.text} is not supported", token.text, token)

    def imports(self) -> None:
        token = self.peek()
        path = [self.name()]
        while self.eat("."):
            path.append(self.name())
        names: list[str] = []
        if self.eat("("):
            names.append(self.name())
            while self.eat(","):
                names.append(self.name())
            self.expect(")")
        else:
            names.append(path.pop())
        if path != ["common"]:
            self.fail("only %import common.NAME is supported", "%import", token)
        aliases = {name: name for name in names}
        if self.eat("->"):
            aliases[names[0]] = self.name()
        library = _library()
        for name, alias in aliases.items():
            if name not in library:
                self.fail(f"there is no common terminal {name!r}", "%import", token)
            self.source.definitions.setdefault(alias, library[name])
        self.source.definitions = {**_hidden(library), **self.source.definitions}

    # -- expressions ------------------------------------------------------------------------

    def starts_definition(self) -> bool:
        """Whether a definition begins here: ``name:``, ``name.2:`` or ``name{a}:``."""
        if self.peek().kind != "name":
            return False
        ahead = 1
        if self.peek(ahead).text == "{" and self.peek(ahead).kind == "sign":
            while self.peek(ahead).text != "}":
                if self.peek(ahead).kind == "end":
                    return False
                ahead += 1
            ahead += 1
        if self.peek(ahead).text == "." and self.peek(ahead + 1).kind == "number":
            ahead += 2
        return self.peek(ahead).kind == "sign" and self.peek(ahead).text == ":"

    def options(self) -> Tree:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail("groups nest too deeply")
        found = [self.branch()]
        while self.eat("|"):
            found.append(self.branch())
        self.depth -= 1
        return found[0] if len(found) == 1 else Options(tuple(found))

    def branch(self) -> Tree:
        parts: list[Tree] = []
        while self.peek().kind in ("name", "string", "regex", "special") or (
            self.peek().kind == "sign" and self.peek().text in "(["
        ):
            if self.starts_definition():
                break
            parts.append(self.quantified())
        if self.eat("->"):
            self.name()  # An alias names a tree node; it changes no membership.
        return parts[0] if len(parts) == 1 else Branch(tuple(parts))

    def quantified(self) -> Tree:
        part = self.atom()
        while self.peek().kind == "sign":
            if self.peek().text in _OPERATORS:
                part = Repeated(part, *_OPERATORS[self.next().text])
            elif self.eat("~"):
                token = self.peek()
                minimum = self.count()
                maximum = self.count() if self.eat("..") else minimum
                if not 0 <= minimum <= maximum:
                    self.fail("the bounds are out of order", "~", token)
                part = Repeated(part, minimum, maximum)
            else:
                break
        return part

    def count(self) -> int:
        token = self.next()
        if token.kind != "number" or len(token.text) > 9:
            self.fail("expected a count", "~", token)
        return int(token.text)

    def atom(self) -> Tree:
        token = self.next()
        match token.kind:
            case "string":
                if self.eat(".."):
                    return self.range(token, self.next())
                return Text(_string_node(token), token)
            case "regex":
                return Text(_regex_node(token, narrow=self.narrow), token)
            case "name":
                arguments: list[Tree] = []
                if self.eat("{"):
                    arguments.append(self.options())
                    while self.eat(","):
                        arguments.append(self.options())
                    self.expect("}")
                return Name(token.text.lstrip("!?"), tuple(arguments), token.offset)
            case "special":
                self.fail("special tokens in a grammar are not supported", token.text, token)
        inner = self.options()
        self.expect(")" if token.text == "(" else "]")
        return inner if token.text == "(" else Repeated(inner, 0, 1)

    def range(self, first: Token, last: Token) -> Tree:
        if last.kind != "string":
            self.fail("expected a string after ..", "..", last)
        low, high = _unquoted(first), _unquoted(last)
        if len(low) != 1 or len(high) != 1 or low > high:
            self.fail("a range goes from one character up to another", "..", first)
        return Text(syntax.Characters(((ord(low), ord(high)),)), first)


def _unquoted(token: Token) -> str:
    body = token.text.removesuffix("i")[1:-1]
    # Python's escapes, read by the regex parser: every other character is itself.
    parsed = regex_parser.parse(re.sub(r"(?<!\\)((?:\\\\)*)([.^$*+?{}\[\]|()])", r"\1\\\2", body))
    parts = parsed.parts if isinstance(parsed, syntax.Sequence) else (parsed,)
    text = ""
    for part in parts:
        match part:
            case syntax.Characters(((low, high),)) if low == high:
                text += chr(low)
            case _:
                raise ConstraintError(f"offset {token.offset}", "string", "a bad escape")
    return text


def _string_node(token: Token) -> syntax.Node:
    text = _unquoted(token)
    if token.text.endswith("i"):
        return regex_parser.parse("(?i)" + re.escape(text))
    return syntax.sequence(syntax.Characters(((ord(c), ord(c)),)) for c in text)


def _regex_node(token: Token, *, narrow: bool) -> syntax.Node:
    body, _, flags = token.text[1:].rpartition("/")
    pattern = (f"(?{flags})" if flags else "") + body.replace(r"\/", "/")
    try:
        node = regex_parser.parse(pattern, narrow=narrow)
        if narrow and syntax.has_assertions(node) and node_dfa(node).is_empty:
            return regex_parser.parse(pattern)
        return node
    except ConstraintError as error:
        raise ConstraintError(
            f"offset {token.offset}", error.keyword, f"in a regex, at {error.path}: {error.reason}"
        ) from None


@cache
def _library() -> dict[str, Definition]:
    """The common terminals. Not to be changed."""
    return _Parser(COMMON).parse().definitions


def _hidden(library: dict[str, Definition]) -> dict[str, Definition]:
    """What library terminals are built of, under names that no grammar can write."""
    return {f"common {name}": definition for name, definition in library.items()}
