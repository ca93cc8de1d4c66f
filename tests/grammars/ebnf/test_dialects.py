"""Promised: GBNF and Lark texts mean what their own tools say; mistakes are named by place."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars.constraints import Ebnf
from ramet.grammars.ebnf import ebnf_automaton
from ramet.grammars.ebnf.notation import notation_of
from ramet.grammars.errors import ConstraintError, GrammarTooComplexError
from ramet.grammars.regular import RegularLimits

Accepts = Callable[[str, str], bool]

GBNF_JSON = r"""
# A JSON document
root   ::= value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( pair ("," ws pair)* )? "}" ws
pair   ::= string ":" ws value
array  ::=
  "[" ws (
      value
    ("," ws value)*
  )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws
ws     ::= [ \t\n]*
"""

LARK_JSON = r"""
?start: value
?value: object | array | string
      | SIGNED_NUMBER   -> number
      | "true" -> true
      | "false" -> false
      | "null" -> null
array  : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : string ":" value
string : ESCAPED_STRING

%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False),
        st.text(st.characters(codec="utf-8", exclude_characters="\x7f"), max_size=4),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(alphabet="ab\"\\\n", max_size=2), inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(VALUES, st.sampled_from([None, 1]), st.integers(0, 100))
def test_json_in_both_dialects(
    accepts: Accepts, value: object, indent: int | None, cut: int
) -> None:
    text = json.dumps(value, indent=indent if value else None)
    for grammar in (GBNF_JSON, LARK_JSON):
        assert accepts(grammar, text)
    part = text[: cut % max(1, len(text))]
    try:
        json.loads(part)
    except ValueError:
        assert not accepts(GBNF_JSON, part)


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('root ::= "a" | "b"', ["a", "b"], ["", "ab"]),
        ("root ::= [a-c]+ [^x] .", ["ab\n", "aa😀"[:3] + "é"], ["a", "axx"]),
        (r'root ::= "\x41\u00e9\U0001F600\n\"\\"', ['Aé😀\n"\\'], ["A"]),
        ('root ::= "a"{2} "b"{1,} "c"{0,2}', ["aab", "aabbcc"], ["ab", "aabccc"]),
        ('root ::= (\n  "a" |\n  "b"\n)* x-y\nx-y ::= "!"', ["!", "abba!"], ["ab"]),
        ('root ::= "a" # comment | "b"\n| "c"', ["a", "c"], ["b"]),
        ("root ::= [-a] [a-] [\\]\\[]", ["-a]", "a-["], ["b-]"]),
        ('root ::= ""', [""], ["a"]),
        ("root ::= [娃-高]+", ["娃高"], ["a"]),
        ('root ::= "x" ? "y" *', ["", "xyy"], ["xx"]),
    ],
)
def test_gbnf(accepts: Accepts, grammar: str, yes: list[str], no: list[str]) -> None:
    assert notation_of(grammar).dialect == "gbnf"
    assert all(accepts(grammar, text) for text in yes)
    assert not any(accepts(grammar, text) for text in no)


@pytest.mark.parametrize(
    ("grammar", "yes", "no"),
    [
        ('start: "a" "b"i | /c+/i', ["ab", "aB", "cC"], ["Ab", ""]),
        ('start: A ~ 2 B ~ 1..2\nA: "a"\nB: "b"', ["aab", "aabb"], ["ab", "aabbb"]),
        ('start: "a".."c" | ["x"]', ["b", "", "x"], ["d"]),
        ('start: item ("," item)*\nitem: WORD -> word | INT\n%import common (WORD, INT)',
         ["a,12,b"], [",", "a1"]),
        ('start: NAME\n%import common.CNAME -> NAME', ["_a1"], ["1a"]),
        ('start: "a" b // comment\n# comment\n?b.2: "b"\n  | "c"', ["ab", "ac"], ["a"]),
        ('start: sep{NUM, ";"}\nsep{x, d}: x (d x)*\nNUM: /[0-9]/+', ["1;23"], ["1;"]),
        ('start: pair{pair{"a"}}\npair{x}: x x', ["aaaa"], ["aa"]),
        ('start: "a" "b"\n%ignore " "\n%ignore /#[^\\n]*/', ["ab", " a  b ", "a b#c"], ["a"]),
        (r'start: "\"" "\\" "\n" "é" "\u00e9" "(x)"', ['"\\\néé(x)'], []),
        ('start: KEY\nKEY: /(?!end)[a-z]+/', ["ends"[1:], "x"], ["end"]),
        ('start: a\na: "x"\n%extend a: "y"\n%override a: "z" | "w"', ["z", "w"], ["x", "y"]),
        ('start: a\na: "x"\n%extend a: "y"', ["x", "y"], ["z"]),
        ('start: ESCAPED_STRING C_COMMENT\n%import common (ESCAPED_STRING, C_COMMENT)',
         ['"a\\"b"/* * */'], ['"a"b"/**/', '"a"/**/*/']),
        ("start: FLOAT | SIGNED_INT\n%import common (FLOAT, SIGNED_INT)",
         ["1.5", ".5", "1e5", "-3"], ["-1.5", "1e"]),
        ('!start: "+"? "a" | "b"?', ["+a", "a", "b", ""], ["+"]),
    ],
)  # fmt: skip
def test_lark(accepts: Accepts, grammar: str, yes: list[str], no: list[str]) -> None:
    assert notation_of(grammar).dialect == "lark"
    assert all(accepts(grammar, text) for text in yes)
    assert not any(accepts(grammar, text) for text in no)


def test_another_rule_to_start_with() -> None:
    grammar = 'root ::= "a" x\nx ::= "b"'
    automaton = ebnf_automaton(Ebnf(grammar, start="x"))
    assert automaton.is_accepting(int(automaton.row(automaton.start)[ord("b")]))
    with pytest.raises(ConstraintError, match="no rule 'y'"):
        ebnf_automaton(Ebnf(grammar, start="y"))


@pytest.mark.parametrize(
    ("grammar", "path", "keyword"),
    [
        ('root ::= "a" x', "offset 13", "x"),
        ('root ::= "a', "offset 9", "string"),
        ("root ::= [a", "offset 9", "class"),
        ("root ::= [b-a]", "offset 13", "class"),
        ('root ::= ("a"', "offset 9", "group"),
        ('root ::= "a")', "offset 12", "ebnf"),
        (r'root ::= "\q"', "offset 10", "escape"),
        ('root ::= "a"{3,2}', "offset 12", "quantifier"),
        ('root ::= "a"\nroot ::= "b"', "offset 13", "root"),
        ("root ::= <think>", "offset 9", "token"),
        ('root ::= "a" root', "", "root"),
        ("start: x", "offset 7", "x"),
        ("start: X", "offset 7", "X"),
        ("X: Y\nY: X\nstart: X", "offset 8", "X"),
        ("start: /(/", "offset 7", "group"),
        (r"start: /(a)\1/", "offset 7", "backreference"),
        ('start: "a" ~ 3..2', "offset 13", "~"),
        ("%declare X\nstart: X", "offset 0", "%declare"),
        ("%import python.NAME\nstart: NAME", "offset 8", "%import"),
        ("%import common.NOPE\nstart: NOPE", "offset 8", "%import"),
        ('start: a{"x"}\na: "y"', "offset 7", "a"),
        ("start: <|special|>", "offset 7", "<|special|>"),
        ("", "", "start"),
        ('A: b\nb: "x"\nstart: A', "offset 3", "b"),
    ],
)
def test_mistakes_are_named_by_place(grammar: str, path: str, keyword: str) -> None:
    with pytest.raises(ConstraintError) as caught:
        ebnf_automaton(Ebnf(grammar))
    assert (caught.value.path, caught.value.keyword) == (path, keyword)


@pytest.mark.parametrize(
    "grammar",
    [
        'root ::= "a"{1,50000} x\nx ::= x "b" | "c"',
        'root ::= x{1,9000}\nx ::= "a" root | "b"',
        'start: t{"x"}\nt{p}: t{(p p)}',
        "root ::= " + "(" * 3000 + '"a"' + ")" * 3000,
    ],
)
def test_large_grammars_get_a_clear_answer(grammar: str) -> None:
    with pytest.raises(ConstraintError):
        ebnf_automaton(Ebnf(grammar), RegularLimits(max_states=5000))


SYNTAX = st.text(alphabet='ab:=|()[]{}"/\\ \n*+?~.-<>%_AB1,i', max_size=24)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["", "root ::= ", "start: ", "start: A\nA: "]), SYNTAX)
def test_no_text_crashes_a_parser(begin: str, text: str) -> None:
    for dialect in ("gbnf", "lark"):
        try:
            automaton = ebnf_automaton(
                Ebnf(begin + text, dialect=dialect), RegularLimits(max_states=2000)
            )
        except ConstraintError as error:
            outcome: object = error.reason or isinstance(error, GrammarTooComplexError)
        else:
            outcome = automaton.row(automaton.start) is not None
        assert outcome
