"""Formats that need a decoded string: no automaton decides Punycode or a leap second's offset.

A mask keeps to a regular part of these formats (``by_name``); validation decides each string here.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping

import idna

from .by_name import ADDRESS_LITERAL, EMAIL_LOCAL, HOSTNAME, TIME, string_format

_MAX_LEN = 4096
_STRING = re.compile(r'(?="((?:[^"\\]|\\.)*)")')
_LEAP = re.compile(r"(\d\d):(\d\d):60(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_HOSTNAME = re.compile(HOSTNAME)
_EMAIL_LOCAL = re.compile(EMAIL_LOCAL)
_LITERAL = re.compile(ADDRESS_LITERAL)
_TIME = re.compile(TIME)
_A_LABEL = "xn--"
_DAY = 24 * 60


def _is_hostname(text: str) -> bool:
    if len(text) > 253 or not _HOSTNAME.fullmatch(text):
        return False
    return all(_is_label(label) for label in text.split("."))


def _is_label(label: str) -> bool:
    """Whether a label that may be Punycode decodes to one that encodes to it again."""
    if not label.lower().startswith(_A_LABEL):
        return True
    try:
        return idna.alabel(idna.ulabel(label)) == label.lower().encode()
    except (idna.IDNAError, UnicodeError):
        return False


def _is_idn_hostname(text: str) -> bool:
    if not text or text.endswith(_DOTS):
        return False
    try:
        name = idna.decode(idna.encode(text))
        if any(unicodedata.bidirectional(c) in _RIGHT_TO_LEFT for c in name):
            # RFC 5893, section 2: then all labels follow the rule.
            return all(idna.check_bidi(label, check_ltr=True) for label in name.split("."))
    except (idna.IDNAError, UnicodeError):
        return False
    return True


_RIGHT_TO_LEFT = ("R", "AL", "AN")


_DOTS = ("\u002e", "\u3002", "\uff0e", "\uff61")


def _is_email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    if not at or len(text) > 254 or len(local) > 64 or not _EMAIL_LOCAL.fullmatch(local):
        return False
    return bool(_LITERAL.fullmatch(domain)) or _is_hostname(domain)


def _is_time(text: str) -> bool:
    if _TIME.fullmatch(text):
        return True
    leap = _LEAP.fullmatch(text)
    if leap is None:
        return False
    hour, minute, sign, ahead, more = leap.groups()
    hours = [int(n) for n in (hour, minute, ahead or "0", more or "0")]
    if hours[0] > 23 or hours[1] > 59 or hours[2] > 23 or hours[3] > 59:
        return False
    offset = hours[2] * 60 + hours[3]
    local = hours[0] * 60 + hours[1]
    return (local - (-offset if sign == "-" else offset)) % _DAY == _DAY - 1


def _is_date_time(text: str) -> bool:
    is_date = _is_regular("date", text[:10])
    return is_date and text[10:11] in ("T", "t") and _is_time(text[11:])


def _is_regular(name: str, text: str) -> bool:
    found = string_format(name)
    assert found is not None
    is_short = found.max_length is None or len(text) <= found.max_length
    return is_short and found.dfa.accepts(text.encode())


DECODED: Mapping[str, Callable[[str], bool]] = {
    "hostname": _is_hostname,
    "idn-hostname": _is_idn_hostname,
    "email": _is_email,
    "time": _is_time,
    "date-time": _is_date_time,
}
"""By format, whether a string is of it, exactly."""


def decoded_members(text: bytes) -> dict[str, frozenset[str]]:
    """By format of ``DECODED``, the strings of a text that are of it; empty if automata tell."""
    if text.isascii() and not _SIGNS.search(text):
        return {}
    strings = _strings(text)
    found = {name: frozenset(filter(is_one, strings)) for name, is_one in DECODED.items()}
    if all(_is_regular(name, string) for name in found for string in found[name]):
        return {}
    return found


_SIGNS = re.compile(rb":60|[Xx][Nn]--|\\u|[A-Za-z0-9.-]{33}|(?:[A-Za-z0-9-]+\.){3}")
"""What an ASCII text has in which a string may be of a format by decoding alone."""


def _strings(text: bytes) -> set[str]:
    """What may be a JSON string in a text, decoded."""
    found = set()
    for match in _STRING.finditer(text.decode("utf-8", "replace")):
        body = match.group(1)
        if len(body) <= _MAX_LEN:
            try:
                string = json.loads(f'"{body}"')
                string.encode()
            except ValueError:
                continue
            found.add(string)
    return found
