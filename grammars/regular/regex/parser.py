"""A parser for regexes in Python's syntax (``re``) and in ECMA-262's (Unicode mode).

ECMA's is read as leniently as browsers do where only one meaning is possible: ``\\-`` is ``-``,
a brace that opens no quantifier is itself, ``(?P<name>...)`` and a leading ``(?i)`` are understood.
What a finite automaton can't decide (backreferences, conditionals) is refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ramet.grammars.regular.automata.utf8 import ALL, negated

from . import classes
from .class_reader import ClassReader
from .syntax import (
    ANY_TEXT,
    AT_END,
    AT_START,
    NOTHING,
    After,
    Before,
    Characters,
    Node,
    Repeat,
    alternatives,
    has_assertions,
    sequence,
)

Dialect = Literal["python", "ecma"]

_MAX_DEPTH = 200


_FLAG_NAMES = {
    "i": "ignore_case",
    "m": "multiline",
    "s": "dot_all",
    "x": "verbose",
    "a": "ascii_only",
    "u": "ascii_only",
}


def parse(pattern: str, dialect: Dialect = "python", *, narrow: bool = False) -> Node:
    """The syntax tree of a pattern.

    ``narrow`` lets ``\\d``, ``\\w`` and ``\\s`` be ASCII where that makes the language smaller: not
    in a negated set or assertion, or as ``\\D``, ``\\W``, ``\\S``, ``\\b``, unless two negations
    cancel. ``(?u)`` ends it.

    Raises:
        ConstraintError: at ``offset n`` (in characters), naming the construct.
    """
    return _Parser(pattern, ecma=dialect == "ecma", narrow=narrow).parse()


class _Parser(ClassReader):
    def __init__(self, pattern: str, *, ecma: bool, narrow: bool) -> None:
        super().__init__(pattern, ecma=ecma, narrow=narrow)
        self.depth = 0

    # -- structure --------------------------------------------------------------------------

    def parse(self) -> Node:
        node = self.options()
        if self.at < len(self.text):
            self.fail("unbalanced parenthesis")
        return node

    def options(self) -> Node:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail("groups nest too deeply")
        found = [self.branch()]
        while self.eat("|"):
            found.append(self.branch())
        self.depth -= 1
        return alternatives(found)

    def branch(self) -> Node:
        parts: list[Node] = []
        while (c := self.peek()) and c not in "|)":
            if self.flags.verbose and self.skip_verbose():
                continue
            begin = self.at
            node = self.atom()
            if node is None:
                continue
            parts.append(self.quantified(node, begin))
        return sequence(parts)

    def skip_verbose(self) -> bool:
        if self.peek() in " \t\n\r\f\v":
            self.at += 1
        elif self.peek() == "#":
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end + 1
        else:
            return False
        return True

    def skip_between(self) -> None:
        """Skips what may stand between an atom and its quantifier."""
        while self.peek():
            if not self.ecma and self.eat("(?#"):
                self.until(")", "a comment")
            elif not self.flags.verbose or not self.skip_verbose():
                return

    def quantified(self, node: Node, begin: int) -> Node:
        self.skip_between()
        at = self.at
        bounds = self.quantifier()
        if bounds is None:
            return node
        if self.text[begin] != "(" and has_assertions(node):
            self.fail("nothing to repeat", "quantifier", at)
        if not self.eat("?") and self.peek() == "+":
            if self.ecma:
                self.fail("nothing to repeat", "quantifier")
            self.fail(
                "possessive quantifiers depend on how a matcher searches", "possessive quantifier"
            )
        self.skip_between()
        again = self.at
        if self.quantifier() is not None:
            self.fail("multiple repeat", "quantifier", again)
        minimum, maximum = bounds
        if maximum is not None and maximum < minimum:
            self.fail("the bounds of the quantifier are out of order", "quantifier", at)
        return Repeat(node, minimum, maximum)

    def quantifier(self) -> tuple[int, int | None] | None:
        """The bounds of a quantifier here, if there is one."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.eat(sign):
                return bounds
        if self.peek() != "{":
            return None
        end = self.text.find("}", self.at)
        low, comma, high = self.text[self.at + 1 : max(end, 0)].partition(",")
        digits_only = all(part.isascii() and part.isdigit() for part in (low, high) if part)
        if end < 0 or not digits_only or not (low or (comma and not self.ecma)):
            return None  # A brace that stands for itself.
        if len(low) > 9 or len(high) > 9:
            self.fail("the quantifier's bound is too large", "quantifier")
        self.at = end + 1
        minimum = int(low or 0)
        return minimum, (int(high) if high else None) if comma else minimum

    def atom(self) -> Node | None:
        """One atom; None for what only sets flags or comments."""
        at = self.at
        c = self.text[at]
        self.at += 1
        match c:
            case "(":
                return self.group(at)
            case "[":
                return self.char_class(at)
            case "\\":
                return self.escape(at)
            case ".":
                if self.flags.dot_all:
                    return Characters(ALL)
                ends = classes.LINE_TERMINATORS if self.ecma else classes.NEWLINE
                return Characters(negated(ends))
            case "^":
                return self.line_start() if self.flags.multiline else AT_START
            case "$":
                return self.line_end()
            case "*" | "+" | "?":
                self.fail("nothing to repeat", "quantifier", at)
            case "{":
                self.at = at
                if self.quantifier() is not None:
                    self.fail("nothing to repeat", "quantifier", at)
                self.at = at + 1
        return self.character(ord(c))

    def character(self, code_point: int) -> Node:
        return Characters(self.folded(((code_point, code_point),)))

    # -- groups -----------------------------------------------------------------------------

    def group(self, begin: int) -> Node | None:
        outer = self.flags
        wrap: str | None = None
        if self.eat("?"):
            if self.eat(":"):
                pass
            elif self.eat("="):
                wrap = "ahead"
            elif self.eat("!"):
                wrap = "not ahead"
            elif self.eat("<="):
                wrap = "behind"
            elif self.eat("<!"):
                wrap = "not behind"
            elif self.eat("P<") or self.eat("<"):
                name = self.until(">", "a group's name")
                if not name.replace("$", "_").isidentifier():
                    self.fail(f"bad group name {name!r}", "group", begin)
            elif self.eat("P=") or self.eat("P>"):
                self.fail("backreferences are not regular", "backreference", begin)
            elif self.eat("("):
                self.fail("conditional groups are not regular", "conditional", begin)
            elif self.eat(">"):
                self.fail("atomic groups depend on how a matcher searches", "atomic group", begin)
            elif not self.ecma and self.eat("#"):
                self.until(")", "a comment")
                return None
            elif not self.inline_flags(begin):
                return None
        is_negation = wrap in ("not ahead", "not behind")
        self.is_negative ^= is_negation
        node = self.options()
        self.is_negative ^= is_negation
        self.flags = outer
        if not self.eat(")"):
            self.fail("missing ), unterminated group", "group", begin)
        match wrap:
            case "ahead":
                return After(sequence((node, ANY_TEXT)))
            case "not ahead":
                return After(sequence((node, ANY_TEXT)), negated=True)
            case "behind":
                return Before(sequence((ANY_TEXT, node)))
            case "not behind":
                return Before(sequence((ANY_TEXT, node)), negated=True)
        # A group is one part: it must not dissolve into what is around it before a quantifier.
        return node

    def inline_flags(self, begin: int) -> bool:
        """Reads ``(?i-s:`` or ``(?i)``; False if it was the latter, which has no body."""
        value = True
        flags = self.flags
        while (c := self.peek()) and c not in ":)":
            self.at += 1
            if c == "-" and value:
                value = False
            elif c in _FLAG_NAMES and not (self.ecma and c in "xa"):
                flags = replace(flags, **{_FLAG_NAMES[c]: value != (c == "u")})
                if c == "u":
                    flags = replace(flags, narrow=False)
            else:
                self.fail(f"unknown extension (?{c}", "group", begin)
        if self.eat(")"):
            if begin != 0 and self.text[:begin].strip("(?imsxau)"):
                self.fail("global flags not at the start of the expression", "flags", begin)
            self.flags = flags
            return False
        if not self.eat(":"):
            self.fail("missing ), unterminated group", "group", begin)
        self.flags = flags
        return True

    # -- assertions -------------------------------------------------------------------------

    def line_ends(self) -> Node:
        return Characters(classes.LINE_TERMINATORS if self.ecma else classes.NEWLINE)

    def line_start(self) -> Node:
        return Before(alternatives((NOTHING, sequence((ANY_TEXT, self.line_ends())))))

    def line_end(self) -> Node:
        if self.flags.multiline:
            return After(alternatives((NOTHING, sequence((self.line_ends(), ANY_TEXT)))))
        if self.ecma:
            return AT_END
        return After(Repeat(self.line_ends(), 0, 1))

    def word_border(self, *, negated_: bool) -> Node:
        word = Characters(self.shorthand("w"))
        other = Characters(negated(word.ranges))
        before_word = Before(sequence((ANY_TEXT, word)))
        before_other = Before(alternatives((NOTHING, sequence((ANY_TEXT, other)))))
        after_word = After(sequence((word, ANY_TEXT)))
        after_other = After(alternatives((NOTHING, sequence((other, ANY_TEXT)))))
        if negated_:
            pairs = ((before_word, after_word), (before_other, after_other))
        else:
            pairs = ((before_word, after_other), (before_other, after_word))
        return alternatives(sequence(pair) for pair in pairs)

    # -- escapes ----------------------------------------------------------------------------

    def escape(self, begin: int) -> Node:
        c = self.peek()
        if c == "b" or c == "B":
            self.at += 1
            return self.word_border(negated_=c == "B")
        if not self.ecma and c in ("A", "Z"):
            self.at += 1
            return AT_START if c == "A" else AT_END
        if c.isdigit() and c != "0" and not self.octal_ahead():
            self.fail("backreferences are not regular", "backreference", begin)
        if self.ecma and c == "k":
            self.fail("backreferences are not regular", "backreference", begin)
        if self.is_narrow_class():
            return Characters(self.class_escape(begin, in_class=False))
        return Characters(self.folded(self.class_escape(begin, in_class=False)))

    def octal_ahead(self) -> bool:
        three = self.text[self.at : self.at + 3]
        return not self.ecma and len(three) == 3 and set(three) <= set("01234567")
