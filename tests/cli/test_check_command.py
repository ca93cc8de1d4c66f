"""``ramet check``: what it prints of a constraint, of two, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ramet.cli import app
from ramet.grammars import Choice, FixedText, Regex, StructuralTag, constraint_to_json


def check(*words: str) -> tuple[int, list[str]]:
    result = CliRunner().invoke(app, ["check", *words], env={"COLUMNS": "300"})
    return result.exit_code, result.output.splitlines()


def write(path: Path, constraint) -> str:
    path.write_text(json.dumps(constraint_to_json(constraint)))
    return str(path)


def test_a_regex_with_overlapping_options() -> None:
    assert check("--regex", "aa|a+") == (
        0,
        [
            "kind: regex",
            "can be honoured exactly",
            'short text: "a"',
            'overlap: aa and a+: both accept "aa"',
        ],
    )


def test_a_file_with_a_constraint(tmp_path: Path) -> None:
    code, lines = check(write(tmp_path / "c.json", StructuralTag(FixedText("hi"))))
    assert (code, lines[-1]) == (0, 'short text: "hi"')


def test_a_schema_and_a_grammar(tmp_path: Path) -> None:
    schema, grammar = tmp_path / "s.json", tmp_path / "g.ebnf"
    schema.write_text('{"type": "integer", "minimum": 10}')
    grammar.write_text('root ::= "b" | "cc"')
    code, lines = check("--schema", str(schema))
    assert code == 0
    assert 'short text: "10"' in lines
    assert lines[-1].startswith("not compared: the constraint: a json_schema")
    code, lines = check("--ebnf", str(grammar))
    assert code == 0
    assert 'short text: "b"' in lines


@pytest.mark.parametrize("pattern", ["(a", r"(a)\1", "a(?!a)a"])
def test_what_cannot_be_honoured_has_exit_code_1(pattern: str) -> None:
    code, lines = check("--regex", pattern)
    assert code == 1
    assert lines[-1].startswith("cannot be honoured: ")


def test_equality_of_regexes() -> None:
    assert check("--equal", "a*", "(a|aa)*") == (0, ["equal"])
    assert check("--equal", "a*", "a+") == (1, ['different: only the first accepts ""'])


def test_equality_of_files(tmp_path: Path) -> None:
    first = write(tmp_path / "first.json", Regex("ab?"))
    second = write(tmp_path / "second.json", Choice(("a", "ab")))
    assert check("--equal", first, second) == (0, ["equal"])


def test_a_comparison_that_can_not_be_decided_has_exit_code_2() -> None:
    code, lines = check("--equal", "[ab]*a[ab]{10}", "[ab]*a[ab]{11}")
    assert code == 2
    assert lines[-1].startswith("ramet: the comparison needs more than 1500 states")
    code, lines = check("--equal", "(a", "a")
    assert code == 2
    assert lines[-1].startswith("ramet: ")


def test_wrong_usage_has_exit_code_2(tmp_path: Path) -> None:
    text = tmp_path / "text.json"
    text.write_text("no json")
    tag = write(tmp_path / "tag.json", StructuralTag(FixedText("a")))
    for words, message in (
        ([], "check needs one of"),
        (["--regex", "a", str(text)], "check needs one of"),
        ([str(text)], "is not JSON"),
        ([str(tmp_path / "absent")], "can't be read"),
        (["--equal", tag, "a"], "only a regex or a choice"),
    ):
        code, lines = check(*words)
        assert code == 2
        assert message in " ".join(lines)
