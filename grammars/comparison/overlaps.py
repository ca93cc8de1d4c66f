"""Alternatives of a constraint that have texts in common."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from ramet.grammars.constraints import (
    AnyOf,
    Choice,
    Constraint,
    JsonString,
    Part,
    Regex,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)
from ramet.grammars.errors import ConstraintError
from ramet.grammars.limits import CompileLimits
from ramet.grammars.regular import Dfa, union_all

from .languages import accepts, disagreement, language_of
from .product_search import Work, shortest_text
from .regex_options import regex_options

_MAX_ALTERNATIVES = 64
_MAX_REPORTED = 100
_MAX_DEPTH = 60


@dataclass(frozen=True)
class Overlap:
    """Two alternatives that aren't distinguished.

    Attributes:
        first: the earlier alternative: a JSON pointer into the constraint, and for an option of a
            regex its own pattern.
        second: the later one.
        what: "text": both accept all of ``example``. "begin": one tag's begin is the beginning
            of the other's, which is ``example``.
        example: a shortest text that shows it.
    """

    first: str
    second: str
    what: Literal["text", "begin"]
    example: str


@dataclass(frozen=True)
class NotCompared:
    """A part, or a pair of parts, of which it isn't known whether it overlaps, and why."""

    path: str
    reason: str


@dataclass(frozen=True)
class OverlapReport:
    """The overlaps of a constraint's alternatives, and what wasn't compared."""

    overlaps: tuple[Overlap, ...]
    not_compared: tuple[NotCompared, ...]

    def to_json(self) -> dict[str, list[dict[str, str]]]:
        """The report as plain JSON."""
        return {
            "overlaps": [dataclasses.asdict(overlap) for overlap in self.overlaps],
            "not_compared": [dataclasses.asdict(part) for part in self.not_compared],
        }


def find_overlaps(
    constraint: Constraint, *, max_seconds: float = 5.0, limits: CompileLimits | None = None
) -> OverlapReport:
    """The alternatives of a constraint that overlap: of a regex, a choice, and of tags.

    Work is bounded: what takes more is listed as not compared, as are parts that aren't regular.
    A list ends after 100 entries with an entry that says so.
    """
    search = _Search(limits or CompileLimits(), Work(max_seconds))
    try:
        search.constraint(constraint)
    except _Ended as ended:
        search.not_compared.append(NotCompared("", str(ended)))
    return OverlapReport(tuple(search.overlaps), tuple(search.not_compared))


class _Ended(Exception):
    """The work or the number of results has reached its bound."""


@dataclass(frozen=True)
class _Alternative:
    path: str
    part: Part
    language: Dfa


class _Search:
    def __init__(self, limits: CompileLimits, work: Work) -> None:
        self._limits = limits
        self._work = work
        self.overlaps: list[Overlap] = []
        self.not_compared: list[NotCompared] = []

    def constraint(self, constraint: Constraint) -> None:
        if isinstance(constraint, StructuralTag):
            self._part(constraint.root, "/root", 0)
        elif isinstance(constraint, Regex | Choice):
            self._part(constraint, "", 0)
        else:
            self._skip("", f"a {constraint.kind} is not compared: it isn't a regular constraint")

    def _part(self, part: Part, path: str, depth: int) -> None:
        if depth > _MAX_DEPTH:
            self._skip(path, "parts nest too deeply")
            return
        match part:
            case Regex():
                self._regex(part, path)
            case Choice():
                self._choice(part, f"{path}/choices")
            case AnyOf(options):
                self._alternatives(options, f"{path}/options")
            case TriggeredTags(tags):
                self._alternatives(tags, f"{path}/tags")
        for where, inner in _inside(part):
            self._part(inner, path + where, depth + 1)

    def _regex(self, regex: Regex, path: str) -> None:
        options = regex_options(regex)
        if len(options) == 1:
            return
        if len(options) > _MAX_ALTERNATIVES:
            self._skip(path, f"the regex has more than {_MAX_ALTERNATIVES} options")
            return
        lead = f"{path}: " if path else ""
        try:
            whole = self._language(regex)
            found = [_Alternative(f"{lead}{p.pattern}", p, self._language(p)) for p in options]
            together = union_all((a.language for a in found), self._limits.regular)
        except ConstraintError as error:
            self._skip(path, error.reason)
            return
        if together != whole:
            self._skip(path, "its options don't stand for themselves")
            return
        self._compare(found)

    def _choice(self, choice: Choice, path: str) -> None:
        seen: dict[str, int] = {}
        for i, text in enumerate(choice.choices):
            if text in seen:
                self._add(Overlap(f"{path}/{seen[text]}", f"{path}/{i}", "text", text))
            seen.setdefault(text, i)

    def _alternatives(self, parts: Sequence[Part], path: str) -> None:
        if len(parts) > _MAX_ALTERNATIVES:
            self._skip(path, f"only the first {_MAX_ALTERNATIVES} alternatives are compared")
            parts = parts[:_MAX_ALTERNATIVES]
        found: list[_Alternative] = []
        for i, part in enumerate(parts):
            try:
                language = self._language(part)
            except ConstraintError as error:
                self._skip(f"{path}/{i}", error.reason)
            else:
                found.append(_Alternative(f"{path}/{i}", part, language))
        self._begins(parts, path)
        self._compare(found)

    def _begins(self, parts: Sequence[Part], path: str) -> None:
        tags = [(f"{path}/{i}", p.begin) for i, p in enumerate(parts) if isinstance(p, Tag)]
        for (first, begin), (second, other) in combinations(tags, 2):
            if begin.startswith(other) or other.startswith(begin):
                self._add(Overlap(first, second, "begin", max(begin, other, key=len)))

    def _compare(self, alternatives: list[_Alternative]) -> None:
        for first, second in combinations(alternatives, 2):
            self._check_time()
            try:
                example = shortest_text(first.language, second.language, operator.and_, self._work)
                if example is None:
                    continue
                for side in (first, second):
                    if not accepts(side.part, example, self._limits):
                        raise disagreement(example)
            except ConstraintError as error:
                self._skip(f"{first.path} and {second.path}", error.reason)
            else:
                self._add(Overlap(first.path, second.path, "text", example))

    def _language(self, part: Part) -> Dfa:
        self._check_time()
        return language_of(part, self._limits, self._work)

    def _check_time(self) -> None:
        if self._work.is_over:
            raise _Ended(f"the rest is not compared: {self._work.max_seconds:g} s have passed")

    def _add(self, overlap: Overlap) -> None:
        if len(self.overlaps) == _MAX_REPORTED:
            raise _Ended(f"there are more than {_MAX_REPORTED} overlaps")
        self.overlaps.append(overlap)

    def _skip(self, path: str, reason: str) -> None:
        if len(self.not_compared) == _MAX_REPORTED:
            raise _Ended(f"more than {_MAX_REPORTED} parts are not compared")
        self.not_compared.append(NotCompared(path, reason))


def _inside(part: Part) -> Iterator[tuple[str, Part]]:
    """The parts of a part, and where they are."""
    match part:
        case Tag(content=content) | JsonString(content):
            yield "/content", content
        case Series(parts):
            yield from ((f"/parts/{i}", inner) for i, inner in enumerate(parts))
        case AnyOf(options):
            yield from ((f"/options/{i}", inner) for i, inner in enumerate(options))
        case TriggeredTags(tags):
            yield from ((f"/tags/{i}", inner) for i, inner in enumerate(tags))
        case Repeated(inner):
            yield "/part", inner
