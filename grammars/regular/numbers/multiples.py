"""The spellings of the multiples of a number (``languages.py``: the universe of spellings)."""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from ramet.grammars.limits import RegularLimits, too_complex
from ramet.grammars.regular.automata.algebra import union_all
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder

from .exponents import exponents_between
from .intervals import MAX_DECIMALS, Interval, intervals_dfa

_MAX_REMAINDERS = 20_000
_MAX_SCIENTIFIC_REMAINDERS = 32


@lru_cache(maxsize=256)
def multiples_dfa(divisor: Decimal, exponents: bool) -> Dfa:
    """The texts whose values are multiples of ``divisor``, which is over 0.

    They are multiples of ``modulus`` times ten to the ``-places``, where ten divides no modulus."""
    if divisor <= 0:
        raise ValueError("a divisor is over 0")
    _, digits, exponent = divisor.as_tuple()
    assert isinstance(exponent, int)
    written = "".join(map(str, digits))
    significant = written.rstrip("0")
    if len(significant) > len(str(_MAX_REMAINDERS)):
        raise too_complex(f"multiples of {divisor}", RegularLimits())
    modulus = int(significant)
    places = len(significant) - len(written) - exponent
    if max(abs(places), 1) * modulus > _MAX_REMAINDERS or (
        exponents and modulus > _MAX_SCIENTIFIC_REMAINDERS
    ):
        raise too_complex(f"multiples of {divisor}", RegularLimits())
    builder = NfaBuilder()
    builder.start = builder.new_state()
    end = builder.new_state()
    _add_plain_multiples(builder, modulus, places, end)
    unsigned = builder.build(end)
    if exponents:
        unsigned = union_all([unsigned, _scientific_multiples(modulus, places)])
    zero = Interval(Decimal(0), Decimal(0))
    signed = NfaBuilder()
    signed.start = signed.new_state()
    end = signed.dfa(unsigned, signed.start)
    minus = signed.byte_range(0x2D, 0x2D, signed.start)
    signed.epsilon_edge(signed.dfa(unsigned, minus), end)
    signed.epsilon_edge(signed.dfa(intervals_dfa([zero], exponents=exponents), signed.start), end)
    return signed.build(end).intersect(intervals_dfa([Interval()], exponents=exponents))


def _add_plain_multiples(builder: NfaBuilder, modulus: int, places: int, end: int) -> None:
    """Adds the plain decimals that are multiples; the states are remainders."""
    zeros = builder.literal(b".0", builder.new_state())  # Only zeros after the point.
    point_zeros = builder.edges[-2][0]
    builder.edges.append((zeros, 48, 48, zeros))
    builder.epsilon_edge(zeros, end)
    whole = [builder.new_state() for _ in range(modulus)]
    for r, state in enumerate(whole):
        for digit in range(10):
            target = whole[(10 * r + digit) % modulus]
            builder.edges.append((state, 48 + digit, 48 + digit, target))
    for digit in range(1, 10):
        target = whole[digit % modulus]
        builder.edges.append((builder.start, 48 + digit, 48 + digit, target))
    zero = builder.byte_range(48, 48, builder.start)
    builder.epsilon_edge(zero, end)
    builder.epsilon_edge(zero, point_zeros)
    if places <= 0:
        # A multiple of the modulus, then as many zeros as the divisor ends in.
        at = whole[0]
        for _ in range(-places):
            at = builder.byte_range(48, 48, at)
        builder.epsilon_edge(at, end)
        builder.epsilon_edge(at, point_zeros)
        return
    # ``decimals[j][r]``: after j decimals.
    decimals = [[builder.new_state() for _ in range(modulus)] for _ in range(places + 1)]
    for r in range(modulus):
        builder.edges.append((whole[r], 46, 46, decimals[0][r]))
        if r * 10**places % modulus == 0:
            builder.epsilon_edge(whole[r], end)
        for j in range(places):
            for digit in range(10):
                target = decimals[j + 1][(10 * r + digit) % modulus]
                builder.edges.append((decimals[j][r], 48 + digit, 48 + digit, target))
            if j and r * 10 ** (places - j) % modulus == 0:
                builder.epsilon_edge(decimals[j][r], end)
    builder.edges.append((zero, 46, 46, decimals[0][0]))
    builder.edges.append((decimals[places][0], 48, 48, decimals[places][0]))
    builder.epsilon_edge(decimals[places][0], end)


def _scientific_multiples(modulus: int, places: int) -> Dfa:
    """The scientific texts that are multiples.

    A mantissa with its last nonzero decimal at place k is n / 10**k; the value is a multiple if
    its exponent is at least k - places + t, where t is the least power of ten that makes n a
    multiple of the modulus. So a state is (k, n modulo the modulus, zeros read since).
    """
    builder = NfaBuilder()
    builder.start = builder.new_state()
    end = builder.new_state()
    exponents: dict[int, int] = {}

    def exponents_from(least: int) -> int:
        if least not in exponents:
            exponents[least] = builder.new_state()
            builder.epsilon_edge(builder.dfa(exponents_between(least, 999), exponents[least]), end)
        return exponents[least]

    powers = _least_powers(modulus)
    states: dict[tuple[int, int, int], int] = {}
    queue: list[tuple[int, int, int]] = []

    def state(k: int, r: int, num_zeros: int) -> int:
        key = (k, r, num_zeros)
        if key not in states:
            states[key] = builder.new_state()
            queue.append(key)
            power = powers[r]
            if power is not None:
                builder.epsilon_edge(states[key], exponents_from(k - places + power))
        return states[key]

    def add_digits(source: int, k: int, r: int, num_zeros: int) -> None:
        if k + num_zeros >= MAX_DECIMALS:
            return
        builder.edges.append((source, 48, 48, state(k, r, num_zeros + 1)))
        for digit in range(1, 10):
            n = (r * 10 ** (num_zeros + 1) + digit) % modulus
            target = state(k + num_zeros + 1, n, 0)
            builder.edges.append((source, 48 + digit, 48 + digit, target))

    for digit in range(1, 10):
        r = digit % modulus
        builder.edges.append((builder.start, 48 + digit, 48 + digit, state(0, r, 0)))
    for k, r, num_zeros in queue:  # Grows on the way.
        source = states[k, r, num_zeros]
        if k == num_zeros == 0:
            source = builder.byte_range(46, 46, source)
        add_digits(source, k, r, num_zeros)
    return builder.build(end)


def _least_powers(modulus: int) -> list[int | None]:
    """For each remainder, the least power of ten that turns it into 0, if there is one."""
    powers: list[int | None] = []
    for r in range(modulus):
        tries = (t for t in range(modulus.bit_length() + 1) if r * 10**t % modulus == 0)
        powers.append(next(tries, None))
    return powers
