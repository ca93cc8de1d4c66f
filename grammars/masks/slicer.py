"""Proofs that a lexeme state allows whole groups of tokens, so that they need no walk.

A *group* is the set of tokens made only of certain characters (``GROUPS``). A breadth-first search
over such characters visits the states they lead to, one level a character. If no byte is refused
up to level n, all tokens of the group with at most n characters are allowed.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ramet.jit import jit

PRINTABLE, PLAIN = range(2)
MAX_EXCEPTIONS = 12
DEPTHS = (6, 12, 24, 1 << 30)
"""Where only this many characters can be proved, longer tokens of the slice are walked."""

_MAX_PAIRS = 1024


def _group_tables() -> tuple[NDArray[np.int32], ...]:
    """Automata of the groups' texts; state 0 is the border between characters.

    Index ``PLAIN`` has every character that may stand in a JSON string as it is, in UTF-8
    (RFC 3629); the others are sets of ASCII characters, the larger first.
    """
    plain = np.full((8, 256), -1, np.int32)
    plain[0, 0x20:0x80] = 0
    plain[0, [0x22, 0x5C]] = -1
    for leads, state in (
        ((0xC2, 0xE0), 1), ((0xE1, 0xF0), 2), ((0xE0, 0xE1), 3), ((0xED, 0xEE), 4),
        ((0xF1, 0xF4), 5), ((0xF0, 0xF1), 6), ((0xF4, 0xF5), 7),
    ):  # fmt: skip
        plain[0, slice(*leads)] = state
    for state, lows, after in (
        (1, (0x80, 0xC0), 0), (2, (0x80, 0xC0), 1), (3, (0xA0, 0xC0), 1), (4, (0x80, 0xA0), 1),
        (5, (0x80, 0xC0), 2), (6, (0x90, 0xC0), 2), (7, (0x80, 0x90), 2),
    ):  # fmt: skip
        plain[state, slice(*lows)] = after
    printable = np.full((1, 256), -1, np.int32)
    printable[0, 0x20:0x7F] = 0
    printable[0, [0x22, 0x5C]] = -1
    visible = printable.copy()
    visible[0, 0x20] = -1
    name = np.full((1, 256), -1, np.int32)
    name[0, list(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] = 0
    word = name.copy()
    word[0, list(b"-_")] = -1
    return printable, plain, visible, name, word


GROUPS = _group_tables()


@njit(inline="always")
def _meets(words, reach, lives, live):  # type: ignore[no-untyped-def]
    for i in range(1, 1 + np.int64(min(words[reach], lives[live]))):
        if words[reach + i] & lives[live + i]:
            return True
    return False


@jit(
    "int64(int32[:,::1], int32[:,::1], uint64[::1], uint64[::1], int64, int64, int32[:,::1], int64,"
    " int64)",
)
def _covered_depth(rows, states, words, lives, state, live, group, mode, depth):  # type: ignore[no-untyped-def]
    """The most characters, up to ``depth``, that any text of a group may have from a state.

    ``mode`` is the group's state there; what is left of a begun character counts as one.
    ``live`` is the offset of the live labels in ``lives``, or -1: all are live.
    """
    num_modes = group.shape[0]
    pairs = np.empty(_MAX_PAIRS, np.int64)
    seen = np.full(4 * _MAX_PAIRS, -1, np.int64)
    mask = seen.shape[0] - 1
    pairs[0] = state * num_modes + mode
    count = 1
    begin, level_end = 0, 1
    seen[(pairs[0] * 0x9E3779B1 >> 7) & mask] = pairs[0]
    for level in range(depth):
        # Borders of this level are pairs[begin:level_end]; what is inside a character is appended
        # and read in the same level, borders of the next level are kept for later.
        later = np.empty(_MAX_PAIRS, np.int64)
        num_later = 0
        at = begin
        end = level_end
        while at < end:
            pair = pairs[at]
            at += 1
            own, inside = pair // num_modes, pair % num_modes
            if states[own, 0] == 0:
                return level
            for byte in range(256):
                mode_after = group[inside, byte]
                if mode_after < 0:
                    continue
                target = rows[own, byte]
                if target < 0:
                    return level
                reach = states[target, 2]
                if reach >= 0 and live >= 0 and not _meets(words, reach, lives, live):
                    return level
                found = np.int64(target) * num_modes + mode_after
                slot = (found * 0x9E3779B1 >> 7) & mask
                while seen[slot] >= 0 and seen[slot] != found:
                    slot = (slot + 1) & mask
                if seen[slot] == found:
                    continue
                if count + num_later >= _MAX_PAIRS - 1:
                    return level
                seen[slot] = found
                if mode_after == 0:
                    later[num_later] = found
                    num_later += 1
                else:
                    pairs[end] = found
                    end += 1
                    count += 1
        if num_later == 0:
            return depth
        begin = end
        for i in range(num_later):
            pairs[begin + i] = later[i]
        count += num_later
        level_end = begin + num_later
    return depth


@jit(
    "int64(int32[:,::1], int32[:,::1], uint64[::1], uint64[::1], int64, int64, int32[:,::1], int64,"
    " int64, int32[::1])",
)
def prove_slice(rows, states, words, lives, state, live, group, longest, least, exceptions):  # type: ignore[no-untyped-def]
    """How well a group describes what a state allows.

    Args:
        words, lives, live: the sets of labels that states reach; the live labels are those at
            ``lives[live]``, or all if that is -1.
        longest: the most characters of a token of the group.
        least: first bytes after which fewer characters are covered are exceptions.
        exceptions: int32[n + 1], written: the exceptions, entry 0 counts them.

    Returns:
        The characters, up to ``longest``, that are covered after all other first bytes; -1 if
        there are more than n exceptions.
    """
    depth = longest
    known_targets = np.empty(64, np.int64)
    known_depths = np.empty(64, np.int64)
    num_known = 0
    exceptions[0] = 0
    for byte in range(256):
        mode = group[0, byte]
        if mode < 0:
            continue
        target = rows[state, byte]
        found = 0
        if target >= 0:
            reach = states[target, 2]
            if reach < 0 or live < 0 or _meets(words, reach, lives, live):
                key = np.int64(target) * group.shape[0] + mode
                found = -1
                for i in range(num_known):
                    if known_targets[i] == key:
                        found = known_depths[i]
                        break
                if found < 0:
                    more = _covered_depth(
                        rows, states, words, lives, target, live, group, mode, longest - 1
                    )
                    found = more + 1 if mode == 0 else more
                    if num_known < 64:
                        known_targets[num_known] = key
                        known_depths[num_known] = found
                        num_known += 1
        if found < least:
            count = exceptions[0] + 1
            if count == exceptions.shape[0]:
                return -1
            exceptions[0] = count
            exceptions[count] = byte
        elif found < depth:
            depth = found
    return depth
