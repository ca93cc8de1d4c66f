"""``ramet check``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from ramet.grammars import Choice, Constraint, ConstraintError, Regex


def register(app: typer.Typer) -> None:
    app.command()(check)


def check(
    file: Annotated[
        Path | None, typer.Argument(help="Constraint as JSON, as constraint_to_json writes it.")
    ] = None,
    regex: Annotated[str | None, typer.Option(help="Regex to check, in Python's syntax.")] = None,
    schema: Annotated[Path | None, typer.Option(help="File with a JSON schema to check.")] = None,
    ebnf: Annotated[Path | None, typer.Option(help="File with an EBNF grammar to check.")] = None,
    equal: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Compare two regexes, or .json files with regular constraints."),
    ] = None,
) -> None:
    """Check a constraint without a model, or compare two.

    Prints whether the constraint can be honoured exactly, a short text that matches it, and
    alternatives that overlap. The exit code is 0 if it can be honoured (with --equal: if both
    accept the same texts), 1 if not, and 2 if that can't be determined.
    """
    if [file, regex, schema, ebnf, equal].count(None) != 4:
        raise typer.BadParameter("check needs one of FILE, --regex, --schema, --ebnf and --equal")
    if equal is not None:
        _compare(_regular(equal[0]), _regular(equal[1]))
        return
    _describe(_constraint(file, regex, schema, ebnf))


def _describe(constraint: Constraint) -> None:
    from ramet.grammars import (
        ConstraintError,
        GrammarTooComplexError,
        Vocabulary,
        compile_constraint,
        find_overlaps,
    )

    tokens = [bytes([byte]) for byte in range(256)]
    print(f"kind: {constraint.kind}")
    try:
        vocabulary = Vocabulary.from_tokens([*tokens, None], eos_ids={256})
        grammar = compile_constraint(constraint, vocabulary)
    except ConstraintError as error:
        print(f"cannot be honoured: {error}")
        raise typer.Exit(1) from None
    print("can be honoured exactly")
    try:
        text = grammar.matcher().shortest_completion().decode()
        print(f"short text: {_quoted(text)}")
    except GrammarTooComplexError as error:
        print(f"short text: not found: {error.reason}")
    report = find_overlaps(constraint)
    for overlap in report.overlaps:
        relation = "both accept" if overlap.what == "text" else "both can begin with"
        print(
            f"overlap: {overlap.first} and {overlap.second}: {relation} {_quoted(overlap.example)}"
        )
    for part in report.not_compared:
        print(f"not compared: {part.path or 'the constraint'}: {part.reason}")


def _compare(first: Regex | Choice, second: Regex | Choice) -> None:
    from ramet.grammars import ConstraintError, compare_languages

    try:
        difference = compare_languages(first, second)
    except ConstraintError as error:
        _fail(error)
    if difference is None:
        print("equal")
        return
    print(f"different: only the {difference.accepted_by} accepts {_quoted(difference.example)}")
    raise typer.Exit(1)


def _constraint(
    file: Path | None, regex: str | None, schema: Path | None, ebnf: Path | None
) -> Constraint:
    from ramet.grammars import Ebnf, JsonSchema, Regex

    if regex is not None:
        return Regex(regex)
    if schema is not None:
        return JsonSchema(_json(schema))
    if ebnf is not None:
        return Ebnf(_text(ebnf))
    assert file is not None
    return _from_file(file)


def _regular(word: str) -> Regex | Choice:
    """A regex, or the regular constraint in the file of that name."""
    from ramet.grammars import Choice, Regex

    path = Path(word)
    if path.suffix != ".json":
        return Regex(word)
    constraint = _from_file(path)
    if not isinstance(constraint, Regex | Choice):
        raise typer.BadParameter(f"{word}: only a regex or a choice can be compared")
    return constraint


def _from_file(path: Path) -> Constraint:
    from ramet.grammars import ConstraintError, constraint_from_json

    try:
        return constraint_from_json(_json(path))
    except ConstraintError as error:
        raise typer.BadParameter(f"{path}: {error}") from None


def _json(path: Path) -> object:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"{path} is not JSON: {error}") from None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} can't be read: {error}") from None


def _quoted(text: str) -> str:
    """A text as a JSON string, which shows blanks and line ends."""
    return json.dumps(text, ensure_ascii=False)


def _fail(error: ConstraintError) -> NoReturn:
    print(f"ramet: {error if error.path else error.reason}", file=sys.stderr)
    raise typer.Exit(2) from None
