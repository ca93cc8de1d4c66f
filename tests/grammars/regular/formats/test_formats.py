"""Promised: formats as in the RFCs, exactly; what can't be decided is refused."""

from __future__ import annotations

import calendar
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import FormatChecker

from ramet.grammars.regular import json_string_body
from ramet.grammars.regular.formats import FORMAT_NAMES, format_dfa, string_format
from ramet.grammars.regular.formats.decoded import DECODED
from ramet.grammars.regular.formats.idn import idn_hostname

SHARED = Path(os.environ.get("RAMET_SHARED", Path(__file__).parents[5] / "shared"))
SUITE = SHARED / "bench/grammars/data/JSON-Schema-Test-Suite/tests"

VALID = {
    "date": ["2024-02-29", "2000-02-29", "1999-12-31", "0001-01-01"],
    "time": ["08:30:06Z", "23:59:60Z", "12:00:00.123+05:30", "00:29:60-23:30"],
    "date-time": ["2024-02-29T12:00:00Z", "1998-12-31T15:59:60.123-08:00", "1963-06-19t08:30:06z"],
    "duration": ["P4DT12H30M5S", "P2W", "PT1M2S", "P1Y2M"],
    "email": ["joe.bloggs@example.com", '"a@b c"@x.y', "a@[127.0.0.1]", "a@[IPv6:::1]"],
    "idn-email": ["실례@실례.테스트", "joe@example.com"],
    "idn-hostname": ["www.example.com", "실례.테스트", "münchen.example", "пример"],
    "hostname": ["www.example.com", "a--b.com", "1host"],
    "ipv4": ["0.0.0.0", "255.255.255.255"],
    "ipv6": [
        "::",
        "::1",
        "1:2:3:4:5:6:7:8",
        "1::d6:192.168.0.1",
        "::ffff:1.2.3.4",
        "1:2:3:4:5:6::8",
    ],
    "uri": ["http://foo.bar/?baz=qux#quux", "urn:a:b", "mailto:a@b", "http://[::1]:80/x", "a:"],
    "uri-reference": ["", "//foo", "#x", "./a:b", "?q"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx"],
    "iri-reference": ["/ƒøø", "âππ"],
    "uuid": ["2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
    "uri-template": ["http://example.com/{term:1}/{+x,y*}", ""],
    "json-pointer": ["", "/a/b~0~1", "//\n"],
    "relative-json-pointer": ["0", "1/a", "2#"],
    "regex": ["^[a-z]+$", r"(?:a|b){2,3}\d*", "(?=a)b", "[^]", r"^\S+@\S+\.\w{2,}$"],
}
INVALID = {
    "date": ["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "24-01-01", "2024-01-01 "],
    "time": ["24:00:00Z", "12:00:00", "22:59:60Z", "23:59:60+01:00", "12:00:61Z"],
    "date-time": ["2023-02-29T12:00:00Z", "2024-01-01 12:00:00Z", "1998-12-31T23:58:60Z"],
    "duration": ["P", "PT", "P1Y2D", "PT0.5S", "P1Y2W", "P1D\n"],
    "email": ["a", "a@", "@b", "a..b@c", "a b@c.d", "a@b_c", "a@[300.0.0.1]", "a" * 65 + "@b.c"],
    "idn-email": ["2962", "user＠example.com"],
    "idn-hostname": ["", "-a", "ab--c", "〮한국", "a_b", "É.org", "한" * 30],
    "hostname": ["", "-a", "a-", "a..b", "a_b", "a.", "a" * 64, "xn--X"],
    "ipv4": ["256.0.0.0", "01.0.0.0", "1.2.3", "1.2.3.4.5"],
    "ipv6": [
        "1:2:3:4:5:6:7",
        "1::2::3",
        ":::",
        "12345::",
        "1:2:3:4:5:6:7:8:9",
        "::1%eth0",
        "1:2:3:4:5:6:7::8",
    ],
    "uri": ["//a", "abc", "http://a b", "http://[::1", "http://a/%zz", "1a:b"],
    "uri-reference": ["\\\\a", "a b", "1:b", "%"],
    "iri": ["/abc", "http://a\n"],
    "iri-reference": ["a b", "[x]"],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638g"],
    "uri-template": ["{", "{}", "a}b", "{v:0}"],
    "json-pointer": ["a", "/~", "/~2"],
    "relative-json-pointer": ["", "01", "/a", "0##"],
    "regex": ["(a", "a)", "[b-a]", "a{2,1}", "*a", "a**", "[", "\\"],
}


def accepts(name: str, text: str) -> bool:
    found = string_format(name)
    assert found is not None
    fits = found.max_length is None or len(text) <= found.max_length
    return fits and found.dfa.accepts(text.encode())


@pytest.mark.parametrize("name", sorted(VALID))
def test_examples(name: str) -> None:
    for text in VALID[name]:
        assert accepts(name, text), text
    for text in INVALID[name]:
        assert not accepts(name, text), text


def test_every_format_has_examples_and_a_language() -> None:
    assert set(VALID) == set(INVALID) == FORMAT_NAMES
    for name in VALID:
        dfa = format_dfa(name)
        assert dfa is not None
        body = json_string_body(dfa)
        assert all(body.accepts(json.dumps(text)[1:-1].encode()) for text in VALID[name])


def test_unknown_formats_are_annotations() -> None:
    assert string_format("color") is None
    assert format_dfa("int32") is None


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 9999), st.integers(0, 13), st.integers(0, 32))
def test_dates_are_the_calendars(year: int, month: int, day: int) -> None:
    valid = 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year, max(1, min(month, 12)))[1]
    assert accepts("date", f"{year:04}-{month:02}-{day:02}") == valid


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="0123456789abf:.", max_size=16))
def test_addresses_are_pythons(text: str) -> None:
    checker = FormatChecker()
    for name in ("ipv4", "ipv6"):
        assert accepts(name, text) == checker.conforms(text, name), (name, text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"ab1()[]{}|*+?.^$\-,:=!<d", max_size=10))
def test_what_is_taken_for_a_regex_is_one(text: str) -> None:
    from ramet.grammars.regular import RegularLimits, regex_dfa

    if accepts("regex", text):
        regex_dfa(text, dialect="ecma", search=True, limits=RegularLimits(max_states=100_000))


UNDECIDED = {"regex": "(?<"}
"""By format, the texts that are knowingly not decided as the suite has it."""


@pytest.mark.shared
@pytest.mark.skipif(not SUITE.exists(), reason="the JSON Schema test suite is not at hand")
@pytest.mark.parametrize("draft", ["draft7", "draft2020-12"])
def test_the_official_suite(draft: str) -> None:
    num_checked = 0
    for path in sorted((SUITE / draft / "optional/format").glob("*.json")):
        for group in json.loads(path.read_text()):
            name = group["schema"].get("format")
            if name is None or name not in FORMAT_NAMES:
                continue
            for case in group["tests"]:
                text = case["data"]
                if not isinstance(text, str):
                    continue
                num_checked += 1
                if case["valid"] and UNDECIDED.get(name, "\0") in text:
                    continue
                is_member = DECODED[name](text) if name in DECODED else accepts(name, text)
                assert is_member == case["valid"], (name, text, case["description"])
                assert is_member or not accepts(name, text), (name, text)
    assert num_checked > 300


FAR = st.text("äßñøłжيतกあ漢字한글αωヺ龥힣\u0531", min_size=1, max_size=9)
LABELS = st.lists(st.one_of(FAR, st.text("ab1-", min_size=1, max_size=12)), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(st.lists(LABELS.map("".join), min_size=1, max_size=3).map(".".join))
def test_names_of_the_automaton_are_names(name: str) -> None:
    if idn_hostname().accepts(name.encode()):
        assert DECODED["idn-hostname"](name)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1439), st.sampled_from("+-"), st.integers(0, 1439), st.booleans())
def test_leap_seconds_are_the_last_of_a_day_in_utc(
    local: int, sign: str, offset: int, is_last: bool
) -> None:
    if is_last:
        local = (1439 + (offset if sign == "+" else -offset)) % 1440
    text = f"{local // 60:02}:{local % 60:02}:60{sign}{offset // 60:02}:{offset % 60:02}"
    moment = (local - (offset if sign == "+" else -offset)) % 1440
    assert DECODED["time"](text) == (moment == 1439)
    assert not accepts("time", text) or moment == 1439
