"""A parser for Lark's grammar notation.

The language is what Lark's Earley parser with its dynamic lexer accepts: every way of cutting the
text into terminals counts, so priorities and the longest match change no membership. Terminals
under ``%ignore`` may stand before, between and after other terminals. Assertions in a terminal's
regex look at that terminal's own text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import NoReturn

from ramet.grammars.errors import ConstraintError
from ramet.grammars.regular import parser as regex_parser
from ramet.grammars.regular import syntax
from ramet.grammars.regular.regex import node_dfa

from .ast import (
    Alternatives,
    Call,
    Expression,
    Repeat,
    Rules,
    Sequence,
    Terminal,
    alternatives,
    sequence,
)
from .lark_common import COMMON
from .lark_tokens import Token, tokenise

_MAX_DEPTH = 100
_MAX_TEMPLATE_USES = 1000
_MAX_ARGUMENTS_LEN = 10_000
_IGNORED = "%ignore"
_OPERATORS: dict[str, tuple[int, int | None]] = {"?": (0, 1), "*": (0, None), "+": (1, None)}


def parse_lark(text: str, start: str | None = None) -> Rules:
    """The grammar that a Lark text describes; it starts with ``start`` unless told otherwise.

    Raises:
        ConstraintError: at ``offset n`` of the text.
    """
    return _Resolver(_Parser(text).parse()).resolve(start or "start")


# -- syntax -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Text:
    """A string or a regex, as its syntax tree."""

    node: syntax.Node
    token: Token


@dataclass(frozen=True)
class _Name:
    """A rule, a terminal, or a template with arguments."""

    name: str
    arguments: tuple[_Tree, ...]
    offset: int


@dataclass(frozen=True)
class _Branch:
    parts: tuple[_Tree, ...]


@dataclass(frozen=True)
class _Options:
    options: tuple[_Tree, ...]


@dataclass(frozen=True)
class _Repeated:
    part: _Tree
    minimum: int
    maximum: int | None


_Tree = _Text | _Name | _Branch | _Options | _Repeated


@dataclass(frozen=True)
class _Definition:
    parameters: tuple[str, ...]
    body: _Tree
    offset: int


@dataclass
class _Source:
    """What the text says, names unresolved."""

    definitions: dict[str, _Definition] = field(default_factory=dict)
    ignored: list[_Tree] = field(default_factory=list)


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens = tokenise(text)
        self.at = 0
        self.depth = 0
        self.source = _Source()

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

    def parse(self) -> _Source:
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
            body = _Options((known.body, body))
        self.source.definitions[name] = _Definition(tuple(parameters), body, token.offset)

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

    def options(self) -> _Tree:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail("groups nest too deeply")
        found = [self.branch()]
        while self.eat("|"):
            found.append(self.branch())
        self.depth -= 1
        return found[0] if len(found) == 1 else _Options(tuple(found))

    def branch(self) -> _Tree:
        parts: list[_Tree] = []
        while self.peek().kind in ("name", "string", "regex", "special") or (
            self.peek().kind == "sign" and self.peek().text in "(["
        ):
            if self.starts_definition():
                break
            parts.append(self.quantified())
        if self.eat("->"):
            self.name()  # An alias names a tree node; it changes no membership.
        return parts[0] if len(parts) == 1 else _Branch(tuple(parts))

    def quantified(self) -> _Tree:
        part = self.atom()
        while self.peek().kind == "sign":
            if self.peek().text in _OPERATORS:
                part = _Repeated(part, *_OPERATORS[self.next().text])
            elif self.eat("~"):
                token = self.peek()
                minimum = self.count()
                maximum = self.count() if self.eat("..") else minimum
                if not 0 <= minimum <= maximum:
                    self.fail("the bounds are out of order", "~", token)
                part = _Repeated(part, minimum, maximum)
            else:
                break
        return part

    def count(self) -> int:
        token = self.next()
        if token.kind != "number" or len(token.text) > 9:
            self.fail("expected a count", "~", token)
        return int(token.text)

    def atom(self) -> _Tree:
        token = self.next()
        match token.kind:
            case "string":
                if self.eat(".."):
                    return self.range(token, self.next())
                return _Text(_string_node(token), token)
            case "regex":
                return _Text(_regex_node(token), token)
            case "name":
                arguments: list[_Tree] = []
                if self.eat("{"):
                    arguments.append(self.options())
                    while self.eat(","):
                        arguments.append(self.options())
                    self.expect("}")
                return _Name(token.text.lstrip("!?"), tuple(arguments), token.offset)
            case "special":
                self.fail("special tokens in a grammar are not supported", token.text, token)
        inner = self.options()
        self.expect(")" if token.text == "(" else "]")
        return inner if token.text == "(" else _Repeated(inner, 0, 1)

    def range(self, first: Token, last: Token) -> _Tree:
        if last.kind != "string":
            self.fail("expected a string after ..", "..", last)
        low, high = _unquoted(first), _unquoted(last)
        if len(low) != 1 or len(high) != 1 or low > high:
            self.fail("a range goes from one character up to another", "..", first)
        return _Text(syntax.Characters(((ord(low), ord(high)),)), first)


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


def _regex_node(token: Token) -> syntax.Node:
    body, _, flags = token.text[1:].rpartition("/")
    prefix = f"(?{flags})" if flags else ""
    try:
        return regex_parser.parse(prefix + body.replace(r"\/", "/"))
    except ConstraintError as error:
        raise ConstraintError(
            f"offset {token.offset}", error.keyword, f"in a regex, at {error.path}: {error.reason}"
        ) from None


@cache
def _library() -> dict[str, _Definition]:
    """The common terminals. Not to be changed."""
    return _Parser(COMMON).parse().definitions


def _hidden(library: dict[str, _Definition]) -> dict[str, _Definition]:
    """What library terminals are built of, under names that no grammar can write."""
    return {f"common {name}": definition for name, definition in library.items()}


# -- meaning ------------------------------------------------------------------------------------


def _is_terminal_name(name: str) -> bool:
    return name.removeprefix("common ").lstrip("_")[:1].isupper()


class _Resolver:
    """Turns definitions into rules: terminals become automata, templates are instantiated."""

    def __init__(self, source: _Source) -> None:
        self.source = source
        self.rules: dict[str, Expression] = {}
        self.terminals: dict[str, syntax.Node] = {}
        self.open: list[str] = []
        self.pending: list[tuple[str, _Tree, dict[str, _Tree]]] = []
        self.num_uses = 0

    def resolve(self, start: str) -> Rules:
        ignored = [self.terminal_node(tree) for tree in self.source.ignored]
        skipped: Expression | None = None
        if ignored:
            language = node_dfa(syntax.Repeat(syntax.alternatives(ignored), 0, None))
            skipped = self.rules[_IGNORED] = Terminal(language)
        for name, definition in self.source.definitions.items():
            if not definition.parameters and not name.startswith("common "):
                if _is_terminal_name(name) and name != start:
                    continue
                self.pending.append((name, definition.body, {}))
        if start not in self.source.definitions:
            raise ConstraintError("", "start", f"there is no rule {start!r} to start with")
        while self.pending:
            name, tree, arguments = self.pending.pop()
            if name in self.rules:
                continue
            if _is_terminal_name(name):
                self.rules[name] = self.token(self.named_terminal(name, 0))
            else:
                self.rules[name] = self.expression(tree, arguments)
        if skipped is None:
            return Rules(self.rules, start)
        self.rules["%start"] = Sequence((Call(_IGNORED), Call(start)))
        return Rules(self.rules, "%start")

    # -- terminals --------------------------------------------------------------------------

    def named_terminal(self, name: str, offset: int) -> syntax.Node:
        if name in self.terminals:
            return self.terminals[name]
        definition = self.source.definitions.get(name) or self.source.definitions.get(
            f"common {name}"
        )
        if definition is None:
            raise ConstraintError(f"offset {offset}", name, f"there is no terminal {name!r}")
        if name in self.open:
            raise ConstraintError(f"offset {offset}", name, f"the terminal {name!r} is recursive")
        if definition.parameters:
            raise ConstraintError(f"offset {offset}", name, "templates of terminals don't exist")
        self.open.append(name)
        node = self.terminals[name] = self.terminal_node(definition.body)
        self.open.pop()
        return node

    def terminal_node(self, tree: _Tree) -> syntax.Node:
        match tree:
            case _Text(node, _):
                return node
            case _Name(name, arguments, offset):
                if arguments or not _is_terminal_name(name):
                    raise ConstraintError(
                        f"offset {offset}", name, "a terminal can't be made of rules"
                    )
                return self.named_terminal(name, offset)
            case _Branch(parts):
                return syntax.sequence(map(self.terminal_node, parts))
            case _Options(options):
                return syntax.alternatives(map(self.terminal_node, options))
            case _Repeated(part, minimum, maximum):
                return syntax.Repeat(self.terminal_node(part), minimum, maximum)

    def token(self, node: syntax.Node) -> Expression:
        """A terminal in a rule, and what may be ignored after it."""
        language = node_dfa(node)
        if language.is_empty:
            return Alternatives(())
        terminal = Terminal(language)
        return Sequence((terminal, Call(_IGNORED))) if _IGNORED in self.rules else terminal

    # -- rules ------------------------------------------------------------------------------

    def expression(self, tree: _Tree, arguments: dict[str, _Tree]) -> Expression:
        match tree:
            case _Text(node, _):
                return self.token(node)
            case _Name():
                return self.reference(tree, arguments)
            case _Branch(parts):
                return sequence(self.expression(part, arguments) for part in parts)
            case _Options(options):
                return alternatives(self.expression(option, arguments) for option in options)
            case _Repeated(part, minimum, maximum):
                return Repeat(self.expression(part, arguments), minimum, maximum)

    def reference(self, name: _Name, arguments: dict[str, _Tree]) -> Expression:
        if name.name in arguments:
            return self.expression(arguments[name.name], {})
        if _is_terminal_name(name.name):
            if name.name not in self.rules:
                self.rules[name.name] = self.token(self.named_terminal(name.name, name.offset))
            return Call(name.name, name.offset)
        definition = self.source.definitions.get(name.name)
        if definition is None:
            raise ConstraintError(
                f"offset {name.offset}", name.name, f"there is no rule {name.name!r}"
            )
        if len(definition.parameters) != len(name.arguments):
            raise ConstraintError(
                f"offset {name.offset}", name.name,
                f"{name.name!r} takes {len(definition.parameters)} arguments",
            )  # fmt: skip
        if not definition.parameters:
            return Call(name.name, name.offset)
        bound = [_substituted(a, arguments) for a in name.arguments]
        instance = f"{name.name}{tuple(map(_shown, bound))}"
        if instance not in self.rules:
            self.num_uses += 1
            if self.num_uses > _MAX_TEMPLATE_USES or len(instance) > _MAX_ARGUMENTS_LEN:
                raise ConstraintError(
                    f"offset {name.offset}", name.name, "templates are instantiated without end"
                )
            scope = dict(zip(definition.parameters, bound, strict=True))
            self.pending.append((instance, definition.body, scope))
        return Call(instance, name.offset)


def _mapped(tree: _Tree, change: Callable[[_Name], _Tree]) -> _Tree:
    match tree:
        case _Name():
            return change(tree)
        case _Branch(parts):
            return _Branch(tuple(_mapped(part, change) for part in parts))
        case _Options(options):
            return _Options(tuple(_mapped(option, change) for option in options))
        case _Repeated(part, minimum, maximum):
            return _Repeated(_mapped(part, change), minimum, maximum)
        case _:
            return tree


def _substituted(tree: _Tree, arguments: dict[str, _Tree]) -> _Tree:
    """A tree with the parameters of the template around it replaced."""

    def change(name: _Name) -> _Tree:
        if name.name in arguments:
            return arguments[name.name]
        inner = tuple(_substituted(a, arguments) for a in name.arguments)
        return _Name(name.name, inner, name.offset)

    return _mapped(tree, change)


def _shown(tree: _Tree) -> str:
    """A name for an argument: equal ones are one instance."""
    match tree:
        case _Text(_, token):
            return token.text
        case _Name(name, arguments, _):
            return f"{name}{tuple(map(_shown, arguments))}" if arguments else name
        case _Branch(parts):
            return f"({' '.join(map(_shown, parts))})"
        case _Options(options):
            return f"({'|'.join(map(_shown, options))})"
        case _Repeated(part, minimum, maximum):
            return f"{_shown(part)}~{minimum}..{maximum}"
