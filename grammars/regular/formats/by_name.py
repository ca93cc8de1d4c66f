"""The string formats of JSON Schema as automata over decoded text.

Exact against the RFCs that the specification names, with these choices:

- Leap seconds are allowed where they are 23:59:60 in UTC, on any day, here at offsets of whole
  quarters of an hour (no other was in use since there are leap seconds). Year 0000 is a year.
- ``hostname`` and ``email`` exclude labels that begin with ``xn--`` here: whether Punycode decodes
  to a valid label is not regular, and a wrong one must never be made. ``idn-hostname`` has the
  labels of ``idn``.
- What is left out here is decided by decoding where a whole text is validated (``decoded``).
- ``email`` keeps SMTP's limits (RFC 5321: 64 octets before the @, labels of 63); ``idn-email``
  takes any character beyond ASCII in either part (RFC 6531).
- ``regex`` is a large regular subset of ECMA-262's grammar: see ``regex_format``.

A total length that would multiply an automaton's states is given apart, as ``max_length``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from ramet.grammars.regular.automata.algebra import concat, literal, literals, union_all
from ramet.grammars.regular.automata.dfa import Dfa
from ramet.grammars.regular.automata.nfa import NfaBuilder
from ramet.grammars.regular.regex import regex_dfa

from .idn import idn_hostname
from .regex_format import regex_format


@dataclass(frozen=True)
class Format:
    """A format's language: the members of ``dfa`` with at most ``max_length`` code points."""

    dfa: Dfa
    max_length: int | None = None


FORMAT_NAMES = frozenset(
    {
        "date", "date-time", "time", "duration", "email", "idn-email", "hostname", "idn-hostname",
        "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template",
        "json-pointer", "relative-json-pointer", "regex",
    }
)  # fmt: skip
"""The formats that drafts 07 and 2020-12 define."""


def string_format(name: str) -> Format | None:
    """The language of a format; None for a name that no draft defines, which is an annotation."""
    if name not in FORMAT_NAMES:
        return None
    return _format(name)


def format_dfa(name: str) -> Dfa | None:
    """The automaton of a format alone, without its ``max_length``."""
    found = string_format(name)
    return None if found is None else found.dfa


@cache
def _format(name: str) -> Format:
    match name:
        case "date":
            return Format(_date())
        case "time":
            return Format(_time())
        case "date-time":
            return Format(_date_time())
        case "regex":
            return Format(regex_format())
        case "hostname":
            return Format(_without_punycode(HOSTNAME, r"(.*\.)?"), 253)
        case "email":
            return Format(_email(), 254)
        case "idn-email":
            return Format(regex_dfa(_IDN_EMAIL))
        case "idn-hostname":
            return Format(idn_hostname())
        case _:
            return Format(regex_dfa(_PATTERNS[name]))


# -- dates and times (RFC 3339) -----------------------------------------------------------------

_DAYS = (
    r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    r"|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    r"|02-(0[1-9]|1[0-9]|2[0-8]))"
)
_LEAP_YEAR = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)"
_DATE = rf"([0-9]{{4}}-{_DAYS}|{_LEAP_YEAR}-02-29)"
_MINUTE = r"([01][0-9]|2[0-3]):[0-5][0-9]"
TIME = rf"{_MINUTE}:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]{_MINUTE})"


@cache
def _date() -> Dfa:
    return regex_dfa(_DATE)


@cache
def _time() -> Dfa:
    # The local times at which it is 23:59 in UTC, each with the offset that makes it so.
    last = 23 * 60 + 59
    moments = []
    for local in range(14, 24 * 60, 15):
        for sign, ahead in (("+", local - last), ("-", last - local)):
            offset = ahead % (24 * 60)
            moments.append(f"{_clock(local)}:60#{sign}{_clock(offset)}")
    leap = _without_marker(literals([*moments, f"{_clock(last)}:60#Z", f"{_clock(last)}:60#z"]))
    return regex_dfa(TIME).union(leap)


def _clock(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _without_marker(marked: Dfa) -> Dfa:
    """``#``, in a class of bytes of its own, stands for an optional fraction of a second."""
    builder = NfaBuilder()
    builder.num_states = marked.num_states
    for source, first, last, target in marked.edges.tolist():
        if first != ord("#"):
            builder.edges.append((source, first, last, target))
            continue
        builder.epsilon_edge(source, target)
        fraction = builder.byte_range(48, 57, builder.byte_range(46, 46, source))
        builder.edges.append((fraction, 48, 57, fraction))
        builder.epsilon_edge(fraction, target)
    end = builder.new_state()
    for state in marked.finals:
        builder.epsilon_edge(state, end)
    return builder.build(end)


@cache
def _date_time() -> Dfa:
    return concat(_date(), regex_dfa("[Tt]"), _time())


# Appendix A of RFC 3339: units go from large to small with none left out between two.
_SECOND = "[0-9]+S"
_MINUTES = rf"[0-9]+M({_SECOND})?"
_HOURS = rf"[0-9]+H({_MINUTES})?"
_MONTHS = "[0-9]+M([0-9]+D)?"
_CLOCK_PART = rf"T({_HOURS}|{_MINUTES}|{_SECOND})"
_DURATION = rf"P(([0-9]+D|{_MONTHS}|[0-9]+Y({_MONTHS})?)({_CLOCK_PART})?|{_CLOCK_PART}|[0-9]+W)"

# -- hosts and addresses ------------------------------------------------------------------------

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(\.{_OCTET}){{3}}"
_H16 = "[0-9A-Fa-f]{1,4}"
_LS32 = rf"({_H16}:{_H16}|{_IPV4})"
_IPV6 = (
    "("
    + "|".join(
        [
            rf"({_H16}:){{6}}{_LS32}",
            *(
                rf"(({_H16}:){{0,{before}}}{_H16})?::({_H16}:){{{5 - before - 1}}}{_LS32}"
                if before >= 0
                else rf"::({_H16}:){{5}}{_LS32}"
                for before in range(-1, 5)
            ),
            rf"(({_H16}:){{0,5}}{_H16})?::{_H16}",
            rf"(({_H16}:){{0,6}}{_H16})?::",
        ]
    )
    + ")"
)
_LABEL = "[0-9A-Za-z]([0-9A-Za-z-]{0,61}[0-9A-Za-z])?"
HOSTNAME = rf"{_LABEL}(\.{_LABEL})*"


def _without_punycode(pattern: str, before: str) -> Dfa:
    return regex_dfa(pattern).difference(regex_dfa(rf"{before}[Xx][Nn]--.*"))


_ATOM = r"[0-9A-Za-z!#$%&'*+/=?^_`{|}~-]+"
EMAIL_LOCAL = rf'({_ATOM}(\.{_ATOM})*|"([ !#-\[\]-~]|\\[ -~])*")'
ADDRESS_LITERAL = rf"\[({_IPV4}|[Ii][Pp][Vv]6:{_IPV6})\]"


def _email() -> Dfa:
    local = regex_dfa(EMAIL_LOCAL).intersect(regex_dfa(".{1,64}"))
    domain = union_all([_without_punycode(HOSTNAME, r"(.*\.)?"), regex_dfa(ADDRESS_LITERAL)])
    return concat(local, literal("@"), domain)


_IDN_ATOM = _ATOM.replace("[0-9", "[\x80-\U0010ffff0-9")
_IDN_LETTER = "[0-9A-Za-z\x80-\U0010ffff]"
_IDN_LABEL = rf"{_IDN_LETTER}([0-9A-Za-z\x80-\U0010ffff-]*{_IDN_LETTER})?"
_IDN_EMAIL = (
    rf"({_IDN_ATOM}(\.{_IDN_ATOM})*"
    '|"([ !#-\\[\\]-~\x80-\U0010ffff]|\\\\[ -~])*")'
    rf"@({_IDN_LABEL}(\.{_IDN_LABEL})*|{ADDRESS_LITERAL})"
)

# -- URIs (RFC 3986), IRIs (RFC 3987), templates (RFC 6570) ---------------------------------------

_PERCENT = "%[0-9A-Fa-f]{2}"
_SUB_DELIMS = "!$&'()*+,;="
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"
_UCS_RANGES = [(0xA0, 0xD7FF), (0xF900, 0xFDCF), (0xFDF0, 0xFFEF)]
_UCS_RANGES += [(p << 16, (p << 16) + 0xFFFD) for p in range(1, 14)]
_UCS_RANGES += [(0xE1000, 0xEFFFD)]
_UCS = "".join(f"{chr(a)}-{chr(b)}" for a, b in _UCS_RANGES)
_PRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def _uri_patterns(beyond_ascii: str, private: str) -> tuple[str, str]:
    """The patterns of a URI and of a reference, with more characters for IRIs."""
    unreserved = rf"A-Za-z0-9._~{beyond_ascii}\-"
    char = rf"([{unreserved}{_SUB_DELIMS}:@]|{_PERCENT})"
    no_colon = rf"([{unreserved}{_SUB_DELIMS}@]|{_PERCENT})"
    name = rf"([{unreserved}{_SUB_DELIMS}]|{_PERCENT})*"
    user = rf"([{unreserved}{_SUB_DELIMS}:]|{_PERCENT})*"
    future = rf"[Vv][0-9A-Fa-f]+\.[A-Za-z0-9._~{_SUB_DELIMS}:\-]+"
    authority = rf"({user}@)?(\[({_IPV6}|{future})\]|{name})(:[0-9]*)?"
    segments = rf"(/{char}*)*"
    absolute = rf"/({char}+{segments})?"
    query = rf"(\?({char}|[/?{private}])*)?"
    fragment = rf"(#({char}|[/?])*)?"
    uri = rf"{_SCHEME}:(//{authority}{segments}|{absolute}|{char}+{segments})?{query}{fragment}"
    relative = rf"(//{authority}{segments}|{absolute}|{no_colon}+{segments})?{query}{fragment}"
    return uri, rf"({uri}|{relative})"


_URI, _URI_REFERENCE = _uri_patterns("", "")
_IRI, _IRI_REFERENCE = _uri_patterns(_UCS, _PRIVATE)

_VARIABLE = rf"([A-Za-z0-9_]|{_PERCENT})(\.?([A-Za-z0-9_]|{_PERCENT}))*"
_VARSPEC = rf"{_VARIABLE}(:[1-9][0-9]{{0,3}}|\*)?"
_EXPRESSION = rf"\{{[+#./;?&=,!@|]?{_VARSPEC}(,{_VARSPEC})*\}}"
_TEMPLATE_LITERAL = rf"[!#$&'(-;=?-\[\]_a-z~{_UCS}{_PRIVATE}]"
_URI_TEMPLATE = rf"({_TEMPLATE_LITERAL}|{_PERCENT}|{_EXPRESSION})*"

# -- the rest -----------------------------------------------------------------------------------

_POINTER = r"(/([^~/]|~[01])*)*"

_PATTERNS = {
    "duration": _DURATION,
    "ipv4": _IPV4,
    "ipv6": _IPV6,
    "uri": _URI,
    "uri-reference": _URI_REFERENCE,
    "iri": _IRI,
    "iri-reference": _IRI_REFERENCE,
    "uri-template": _URI_TEMPLATE,
    "uuid": r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
    "json-pointer": rf"(?s:{_POINTER})",
    "relative-json-pointer": rf"(?s:(0|[1-9][0-9]*)(#|{_POINTER}))",
}
