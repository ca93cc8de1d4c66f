"""A parser for Lark's grammar notation.

The language is what Lark's Earley parser with its dynamic lexer accepts: every way of cutting the
text into terminals counts, so priorities and the longest match change no membership. Terminals
under ``%ignore`` may stand before, between and after other terminals. Assertions in a terminal's
regex look at that terminal's own text.
"""

from __future__ import annotations

from collections.abc import Callable

from ramet.grammars.errors import ConstraintError
from ramet.grammars.regular.regex import node_dfa, syntax

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
from .lark_syntax import Branch, Name, Options, Repeated, Source, Text, Tree, parse_definitions

_MAX_TEMPLATE_USES = 1000
_MAX_ARGUMENTS_LEN = 10_000
_IGNORED = "%ignore"


def parse_lark(text: str, start: str | None = None, *, narrow: bool = False) -> Rules:
    """The grammar that a Lark text describes; it starts with ``start`` by default.

    ``narrow`` is as for ``regex_dfa``.

    Raises:
        ConstraintError: at ``offset n`` of the text.
    """
    return _Resolver(parse_definitions(text, narrow=narrow)).resolve(start or "start")


def _is_terminal_name(name: str) -> bool:
    return name.removeprefix("common ").lstrip("_")[:1].isupper()


class _Resolver:
    """Turns definitions into rules: terminals become automata, templates are instantiated."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.rules: dict[str, Expression] = {}
        self.terminals: dict[str, syntax.Node] = {}
        self.open: list[str] = []
        self.pending: list[tuple[str, Tree, dict[str, Tree]]] = []
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

    def terminal_node(self, tree: Tree) -> syntax.Node:
        match tree:
            case Text(node, _):
                return node
            case Name(name, arguments, offset):
                if arguments or not _is_terminal_name(name):
                    raise ConstraintError(
                        f"offset {offset}", name, "a terminal can't be made of rules"
                    )
                return self.named_terminal(name, offset)
            case Branch(parts):
                return syntax.sequence(map(self.terminal_node, parts))
            case Options(options):
                return syntax.alternatives(map(self.terminal_node, options))
            case Repeated(part, minimum, maximum):
                return syntax.Repeat(self.terminal_node(part), minimum, maximum)

    def token(self, node: syntax.Node) -> Expression:
        """A terminal in a rule, and what may be ignored after it."""
        language = node_dfa(node)
        if language.is_empty:
            return Alternatives(())
        terminal = Terminal(language)
        return Sequence((terminal, Call(_IGNORED))) if _IGNORED in self.rules else terminal

    # -- rules ------------------------------------------------------------------------------

    def expression(self, tree: Tree, arguments: dict[str, Tree]) -> Expression:
        match tree:
            case Text(node, _):
                return self.token(node)
            case Name():
                return self.reference(tree, arguments)
            case Branch(parts):
                return sequence(self.expression(part, arguments) for part in parts)
            case Options(options):
                return alternatives(self.expression(option, arguments) for option in options)
            case Repeated(part, minimum, maximum):
                return Repeat(self.expression(part, arguments), minimum, maximum)

    def reference(self, name: Name, arguments: dict[str, Tree]) -> Expression:
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


def _mapped(tree: Tree, change: Callable[[Name], Tree]) -> Tree:
    match tree:
        case Name():
            return change(tree)
        case Branch(parts):
            return Branch(tuple(_mapped(part, change) for part in parts))
        case Options(options):
            return Options(tuple(_mapped(option, change) for option in options))
        case Repeated(part, minimum, maximum):
            return Repeated(_mapped(part, change), minimum, maximum)
        case _:
            return tree


def _substituted(tree: Tree, arguments: dict[str, Tree]) -> Tree:
    """A tree with the parameters of the template around it replaced."""

    def change(name: Name) -> Tree:
        if name.name in arguments:
            return arguments[name.name]
        inner = tuple(_substituted(a, arguments) for a in name.arguments)
        return Name(name.name, inner, name.offset)

    return _mapped(tree, change)


def _shown(tree: Tree) -> str:
    """A name for an argument: equal ones are one instance."""
    match tree:
        case Text(_, token):
            return token.text
        case Name(name, arguments, _):
            return f"{name}{tuple(map(_shown, arguments))}" if arguments else name
        case Branch(parts):
            return f"({' '.join(map(_shown, parts))})"
        case Options(options):
            return f"({'|'.join(map(_shown, options))})"
        case Repeated(part, minimum, maximum):
            return f"{_shown(part)}~{minimum}..{maximum}"
