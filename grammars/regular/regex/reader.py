"""Reading a pattern character by character, and its escapes for single code points."""

from __future__ import annotations

import unicodedata
from typing import NoReturn

from ramet.grammars.errors import ConstraintError

_CONTROL = {"n": 10, "r": 13, "t": 9, "f": 12, "v": 11}
_HEX = frozenset("0123456789abcdefABCDEF")


class PatternReader:
    """A place in a pattern.

    Attributes:
        text: the pattern.
        ecma: its syntax is ECMA-262's, not Python's.
        at: the offset of the next character.
    """

    def __init__(self, pattern: str, *, ecma: bool) -> None:
        self.text = pattern
        self.ecma = ecma
        self.at = 0

    def fail(self, reason: str, keyword: str = "regex", at: int | None = None) -> NoReturn:
        raise ConstraintError(f"offset {self.at if at is None else at}", keyword, reason)

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def eat(self, expected: str) -> bool:
        if self.text.startswith(expected, self.at):
            self.at += len(expected)
            return True
        return False

    def until(self, closer: str, what: str) -> str:
        end = self.text.find(closer, self.at)
        if end < 0:
            self.fail(f"missing {closer} after {what}")
        found = self.text[self.at : end]
        self.at = end + len(closer)
        return found

    # -- escapes ----------------------------------------------------------------------------

    def code_point_escape(self, begin: int, *, in_class: bool) -> int:
        c = self.text[self.at]
        self.at += 1
        if c in _CONTROL:
            return _CONTROL[c]
        if c == "b" and in_class:
            return 8
        match c:
            case "x":
                return self.hexadecimal(2, begin)
            case "u":
                return self.unicode_escape(begin)
            case "0" if self.ecma:
                if self.peek().isdigit():
                    self.fail("octal escapes are not ECMA's", "escape", begin)
                return 0
            case "c" if self.ecma:
                letter = self.peek()
                if not (letter.isascii() and letter.isalpha()):
                    self.fail("\\c needs a letter", "escape", begin)
                self.at += 1
                return ord(letter) % 32
            case "U" if not self.ecma:
                return self.hexadecimal(8, begin)
            case "a" if not self.ecma:
                return 7
            case "N" if not self.ecma and self.eat("{"):
                return self.named_character(begin)
        if c.isascii() and c.isdigit():
            return self.octal(c, begin, in_class=in_class)
        if c.isascii() and c.isalpha():
            self.fail(f"unknown escape \\{c}", "escape", begin)
        return ord(c)

    def octal(self, first: str, begin: int, *, in_class: bool) -> int:
        digits = first
        while len(digits) < 3 and self.peek() and self.peek() in "01234567":
            digits += self.text[self.at]
            self.at += 1
        if set(digits) - set("01234567") or (first != "0" and len(digits) < 3 and not in_class):
            self.fail(f"unknown escape \\{digits}", "escape", begin)
        if self.ecma or int(digits, 8) > 0o377:
            self.fail(f"bad octal escape \\{digits}", "escape", begin)
        return int(digits, 8)

    def named_character(self, begin: int) -> int:
        name = self.until("}", "a character's name")
        try:
            return ord(unicodedata.lookup(name))
        except (KeyError, TypeError):
            self.fail(f"undefined character name {name!r}", "escape", begin)

    def hexadecimal(self, num_digits: int, begin: int) -> int:
        digits = self.text[self.at : self.at + num_digits]
        if len(digits) < num_digits or not set(digits) <= _HEX:
            self.fail("incomplete hexadecimal escape", "escape", begin)
        self.at += num_digits
        if int(digits, 16) > 0x10FFFF:
            self.fail("no such code point", "escape", begin)
        return int(digits, 16)

    def unicode_escape(self, begin: int) -> int:
        if self.ecma and self.eat("{"):
            digits = self.until("}", "\\u{")
            if not digits or not set(digits) <= _HEX or int(digits, 16) > 0x10FFFF:
                self.fail("no such code point", "escape", begin)
            return int(digits, 16)
        unit = self.hexadecimal(4, begin)
        if self.ecma and 0xD800 <= unit < 0xDC00 and self.text.startswith("\\u", self.at):
            low = self.text[self.at + 2 : self.at + 6]
            if len(low) == 4 and set(low) <= _HEX and 0xDC00 <= int(low, 16) < 0xE000:
                self.at += 6
                return 0x10000 + ((unit - 0xD800) << 10) + int(low, 16) - 0xDC00
        return unit
