"""Reads the sets of characters in a pattern: escapes, shorthands and classes in brackets."""

from __future__ import annotations

from dataclasses import dataclass

from ramet.grammars.regular.automata.utf8 import Ranges, negated, normalised

from . import classes
from .reader import PatternReader
from .syntax import Characters, Node

ASCII_CLASSES = {"d": classes.DIGITS, "w": classes.ASCII_WORD, "s": classes.ASCII_SPACE}


@dataclass(frozen=True)
class Flags:
    """What inline flags and the caller set."""

    ignore_case: bool = False
    multiline: bool = False
    dot_all: bool = False
    verbose: bool = False
    ascii_only: bool = False
    narrow: bool = False


class ClassReader(PatternReader):
    """A ``PatternReader`` that knows a dialect's sets of characters under flags."""

    def __init__(self, pattern: str, *, ecma: bool, narrow: bool) -> None:
        super().__init__(pattern, ecma=ecma)
        self.flags = Flags(narrow=narrow)
        self.is_negative = False  # inside an odd number of negations

    def folded(self, ranges: Ranges) -> Ranges:
        if not self.flags.ignore_case:
            return ranges
        return classes.ignoring_case(ranges, ecma=self.ecma, ascii_only=self.flags.ascii_only)

    def is_narrow_class(self) -> bool:
        """Whether the class whose letter is here is ASCII by ``narrow``."""
        return self.flags.narrow and not self.is_negative and self.peek() in ("d", "w", "s")

    def shorthand(self, letter: str) -> Ranges:
        """``\\d``, ``\\w`` or ``\\s`` in this dialect and under these flags."""
        if self.ecma:
            ranges = {
                "d": classes.DIGITS,
                "w": classes.ASCII_WORD,
                "s": classes.ECMA_SPACE,
            }[letter]
            return self.folded(ranges) if letter == "w" else ranges
        if self.flags.ascii_only:
            return ASCII_CLASSES[letter]
        return classes.python_class(letter)

    def class_escape(self, begin: int, *, in_class: bool) -> Ranges:
        """The set that an escape names; the backslash is already read."""
        c = self.peek()
        if not c:
            self.fail("bad escape (end of pattern)", "escape", begin)
        if c in "dws":
            is_narrow = self.is_narrow_class()
            self.at += 1
            return ASCII_CLASSES[c] if is_narrow else self.shorthand(c)
        if c in "DWS":
            self.at += 1
            return negated(self.shorthand(c.lower()))
        if c in "pP" and (self.ecma or self.text[self.at + 1 : self.at + 2] == "{"):
            self.at += 1
            return self.unicode_property(begin, negated_=c == "P")
        code_point = self.code_point_escape(begin, in_class=in_class)
        return ((code_point, code_point),)

    def unicode_property(self, begin: int, *, negated_: bool) -> Ranges:
        if not self.eat("{"):
            self.fail("\\p needs a name in braces", "unicode property", begin)
        name = self.until("}", "a property's name")
        ranges = classes.unicode_property(name)
        if ranges is None:
            self.fail(f"unknown Unicode property {name!r}", "unicode property", begin)
        return negated(ranges) if negated_ else ranges

    def char_class(self, begin: int) -> Node:
        inverted = self.eat("^")
        self.is_negative ^= inverted
        found: list[tuple[int, int]] = []
        unfolded: list[tuple[int, int]] = []
        first = True
        while True:
            c = self.peek()
            if not c:
                self.fail("unterminated character class", "class", begin)
            if c == "]" and not (first and not self.ecma):
                self.at += 1
                break
            first = False
            at = self.at
            if c == "\\":
                self.at += 1
                is_narrow = self.is_narrow_class()
                self.at -= 1
                if is_narrow and self.text[self.at + 2 : self.at + 3] != "-":
                    unfolded += self.class_item()[0]
                    continue
            low = self.class_item()
            if self.peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                high = self.class_item()
                if low[1] and high[1]:
                    if low[0][0][0] > high[0][0][0]:
                        self.fail("bad character range", "class", at)
                    found.append((low[0][0][0], high[0][0][0]))
                    continue
                if not self.ecma:
                    self.fail("bad character range", "class", at)
                found += [*low[0], (45, 45), *high[0]]
                continue
            found += low[0]
        self.is_negative ^= inverted
        ranges = normalised([*self.folded(normalised(found)), *unfolded])
        return Characters(negated(ranges) if inverted else ranges)

    def class_item(self) -> tuple[Ranges, bool]:
        """A member of a class, and whether it is a single character."""
        begin = self.at
        c = self.peek()
        if not c:
            self.fail("unterminated character class", "class")
        self.at += 1
        if c != "\\":
            return ((ord(c), ord(c)),), True
        single = self.peek() not in ("d", "D", "w", "W", "s", "S", "p", "P")
        return self.class_escape(begin, in_class=True), single
