"""JSON's string spellings (RFC 8259, section 7) of a language of decoded texts.

``decoder_table()`` is a deterministic transducer over the bytes between the quotes: it emits the
bytes of the decoded UTF-8 text, at most one for each byte read. So the language of spellings is
that of pairs (state of the language, mode of the decoder), and can also be walked lazily:

    mode2 = decoder.modes[mode, byte]          # -1: no JSON string goes on with this byte
    out = decoder.outputs[mode, byte]          # -1: nothing is emitted yet
    state2 = state if out < 0 else dfa.step(state, bytes([out]))

A spelling is complete where the mode is 0, at the border of a character, and the state accepts.
Lone surrogates are never spelled: no UTF-8 text holds them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from ramet.grammars.limits import DEFAULT_LIMITS, RegularLimits, too_complex
from ramet.grammars.regular.loops import canonical, transductions

from .dfa import Dfa

_SHORT = {'"': 0x22, "\\": 0x5C, "/": 0x2F, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9}


@dataclass(frozen=True, eq=False)
class Transducer:
    """A deterministic byte transducer; mode 0 is the start and the only accepting mode.

    Every way round leads through mode 0.

    Attributes:
        modes: int16[num_modes, 256], the next mode or -1.
        outputs: int16[num_modes, 256], the emitted byte or -1.
    """

    modes: NDArray[np.int16]
    outputs: NDArray[np.int16]

    @cached_property
    def upwards(self) -> NDArray[np.int64]:
        """The modes but 0, each after those that it leads to."""
        targets = [sorted({int(m) for m in row if m > 0}) for row in self.modes]
        done: dict[int, None] = {}

        def visit(mode: int) -> None:
            if mode not in done:
                for target in targets[mode]:
                    visit(target)
                done[mode] = None

        for mode in range(1, len(targets)):
            visit(mode)
        return np.array(list(done), np.int64)


def json_string_body(
    dfa: Dfa,
    limits: RegularLimits = DEFAULT_LIMITS,
    decoder: Transducer | None = None,
    *,
    minimal: bool = True,
) -> Dfa:
    """Every spelling, between the quotes, of the texts in ``dfa``, a language of valid UTF-8.

    ``decoder`` may be one that knows fewer spellings than ``decoder_table()``. Without ``minimal``
    the automaton isn't minimised; only rare states inside escapes are then redundant.

    Raw characters except quote, backslash and controls; the short escapes; ``\\uXXXX`` with either
    case of hexadecimal digits and with surrogate pairs.
    """
    if dfa.is_empty:
        return dfa
    decoder = decoder or decoder_table()
    # Bytes of one class: alike for the decoder in every mode, and emitted alike for the automaton.
    outputs = decoder.outputs
    seen = np.where(outputs >= 0, dfa.class_of[outputs], -1)
    columns = np.concatenate([decoder.modes, seen]).astype(np.int64)
    class_of, firsts = canonical.equal_columns(columns)
    status, table, accepting = transductions.transduce(
        dfa.table, dfa.accepting,
        np.ascontiguousarray(decoder.modes[:, firsts], np.int64),
        np.ascontiguousarray(outputs[:, firsts], np.int64),
        decoder.upwards, dfa.class_of.astype(np.int64), limits.states_for(len(firsts)),
    )  # fmt: skip
    if status:
        raise too_complex("a language of JSON strings", limits)
    if not minimal:
        return Dfa.trimmed(class_of, table, accepting)
    return Dfa.from_table(class_of, table, accepting)


@cache
def decoder_table() -> Transducer:
    """The decoder of JSON string bodies."""
    return _Decoder().build()


class _Decoder:
    """Computes the transducer: a mode is named by the bits that are read and not yet emitted."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}
        self.pending: list[Hashable] = []
        self.transitions: list[list[tuple[int, int, int]]] = []

    def build(self) -> Transducer:
        self.mode("text")
        for name in self.pending:  # Grows on the way.
            self.expand(name)
        modes = np.full((len(self.pending), 256), -1, np.int16)
        outputs = np.full((len(self.pending), 256), -1, np.int16)
        for number, transitions in enumerate(self.transitions):
            for byte, target, output in transitions:
                modes[number, byte] = target
                outputs[number, byte] = output
        modes.setflags(write=False)
        outputs.setflags(write=False)
        return Transducer(modes, outputs)

    def mode(self, name: Hashable) -> int:
        if name not in self.numbers:
            self.numbers[name] = len(self.numbers)
            self.pending.append(name)
            self.transitions.append([])
        return self.numbers[name]

    def on(self, name: Hashable, byte: int, target: Hashable, output: int = -1) -> None:
        number = self.mode(target)
        self.transitions[self.mode(name)].append((byte, number, output))

    def digit(self, name: Hashable, digit: int, target: Hashable, output: int = -1) -> None:
        for byte in {f"{digit:x}", f"{digit:X}"}:
            self.on(name, ord(byte), target, output)

    def expand(self, name: Hashable) -> None:
        match name:
            case "text":
                for byte in range(0x20, 0xF8):
                    if byte not in b'"\\' and not 0x80 <= byte < 0xC0:
                        more = 0 if byte < 0x80 else 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
                        self.on(name, byte, ("raw", more) if more else "text", byte)
                self.on(name, ord("\\"), "escape")
            case ("raw", int(more)):
                for byte in range(0x80, 0xC0):
                    self.on(name, byte, ("raw", more - 1) if more > 1 else "text", byte)
            case "escape":
                for letter, code in _SHORT.items():
                    self.on(name, ord(letter), "text", code)
                self.on(name, ord("u"), "u")
            case "u":
                self.digit(name, 0, "u0")
                for a in range(1, 16):  # Any three bytes, but for surrogates.
                    if a == 0xD:
                        self.digit(name, a, "uD")
                    else:
                        self.digit(name, a, "three", 0xE0 | a)
            case "u0":
                self.digit(name, 0, "u00")
                for b in range(1, 8):
                    self.digit(name, b, ("two", b))
                for b in range(8, 16):
                    self.digit(name, b, ("three", b), 0xE0)
            case "u00":
                for c in range(8):
                    self.digit(name, c, ("one", c))
                for c in range(8, 16):
                    self.digit(name, c, ("last", c & 3), 0xC0 | c >> 2)
            case ("one", int(c)):
                for d in range(16):
                    self.digit(name, d, "text", c << 4 | d)
            case ("two", int(b)):
                for c in range(16):
                    self.digit(name, c, ("last", c & 3), 0xC0 | b << 2 | c >> 2)
            case "three":
                for b in range(16):
                    self.digit(name, b, ("three", b))
            case ("three", int(b)):
                for c in range(16):
                    self.digit(name, c, ("last", c & 3), 0x80 | b << 2 | c >> 2)
            case ("last", int(two_bits)):
                for d in range(16):
                    self.digit(name, d, "text", 0x80 | two_bits << 4 | d)
            case _:
                self.surrogates(name)

    def surrogates(self, name: Hashable) -> None:
        """A pair: high 1101 10xx xxyy yyzz, low 1101 11zz wwww vvvv, less an offset in xxxx."""
        match name:
            case "uD":
                for b in range(8):
                    self.digit(name, b, ("three", b), 0xED)
                for b in range(8, 12):
                    self.digit(name, b, ("high", b & 3))
            case ("high", int(x)):
                for c in range(16):
                    plane = (x << 2 | c >> 2) + 1
                    target = ("plane", plane & 3, c & 3)
                    self.digit(name, c, target, 0xF0 | plane >> 2)
            case ("plane", int(plane), int(y)):
                for d in range(16):
                    output = 0x80 | plane << 4 | y << 2 | d >> 2
                    self.digit(name, d, ("low", d & 3), output)
            case ("low", int(z)):
                self.on(name, ord("\\"), ("low u", z))
            case ("low u", int(z)):
                self.on(name, ord("u"), ("low D", z))
            case ("low D", int(z)):
                self.digit(name, 0xD, ("low zz", z))
            case ("low zz", int(z)):
                for b in range(12, 16):
                    self.digit(name, b, ("low wwww", z, b & 3))
            case ("low wwww", int(z), int(zz)):
                for c in range(16):
                    self.digit(name, c, ("last", c & 3), 0x80 | z << 4 | zz << 2 | c >> 2)
            case _:
                raise AssertionError(name)
