"""Translates a structural tag to rules over automata, special tokens and JSON values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ramet.grammars.constraints import (
    AnyOf,
    Choice,
    Ebnf,
    FixedText,
    FreeText,
    JsonObject,
    JsonSchema,
    JsonString,
    Part,
    Regex,
    Repeated,
    Series,
    Tag,
    TriggeredTags,
)
from ramet.grammars.ebnf import ast, parse_ebnf
from ramet.grammars.errors import ConstraintError, EmptyConstraintError
from ramet.grammars.json_schema.compile import CompiledSchema
from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.limits import CompileLimits
from ramet.grammars.regular import (
    Dfa,
    any_text,
    concat,
    json_string_body,
    literal,
    literals,
    regex_dfa,
    union_all,
)
from ramet.grammars.regular.automata.dfa import EPSILON

_ROOT = "%tag"
_MAX_DEPTH = 60


@dataclass(frozen=True)
class SpecialToken:
    """One special token."""

    token_id: int


@dataclass(frozen=True, eq=False)
class JsonValue:
    """One JSON value."""

    schema: CompiledSchema
    layout: Layout


@dataclass(frozen=True, eq=False)
class BoundedText:
    """Free text, not the empty one, of a bounded number of tokens."""

    dfa: Dfa
    min_tokens: int
    max_tokens: int | None


Foreign = SpecialToken | JsonValue | BoundedText


class TagCompiler:
    """Turns the parts of one structural tag into rules.

    Attributes:
        rules: the rules so far, the root's ``start`` among them.
        foreign: the parts of the rules' ``Foreign`` leaves.
    """

    def __init__(
        self,
        special_ids: Mapping[str, int],
        compile_schema: Callable[[JsonSchema | JsonObject], CompiledSchema],
        limits: CompileLimits,
    ) -> None:
        self.special_ids = {text: i for text, i in special_ids.items() if text}
        self.compile_schema = compile_schema
        self.limits = limits
        self.rules: dict[str, ast.Expression] = {}
        self.foreign: list[Foreign] = []
        self._special: dict[int, ast.Foreign] = {}
        self._num_grammars = 0
        longest_first = sorted(self.special_ids, key=len, reverse=True)
        self._special_texts = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def compile(self, root: Part) -> ast.Rules:
        """The rules of a whole structural tag."""
        self.rules[_ROOT] = self.expression(root, "/root", 0)
        return ast.Rules(self.rules, _ROOT)

    def expression(self, part: Part, path: str, depth: int) -> ast.Expression:
        """One part. ``path`` is its JSON pointer, for errors."""
        if depth > _MAX_DEPTH:
            raise ConstraintError(path, part.kind, "parts nest too deeply")
        try:
            return self._expression(part, path, depth + 1)
        except ConstraintError as error:
            if error.path.startswith("/root"):
                raise
            place = (
                f"{path}{error.path}" if error.path[:1] in ("", "/") else f"{path}: {error.path}"
            )
            raise type(error)(place, error.keyword, error.reason) from None

    def _expression(self, part: Part, path: str, depth: int) -> ast.Expression:
        match part:
            case FixedText(text):
                return self.fixed(text)
            case FreeText():
                return self.free_text(part)
            case Regex(pattern, dialect, classes):
                dfa = regex_dfa(
                    pattern,
                    dialect=dialect,
                    narrow=classes == "ascii",
                    limits=self.limits.regular,
                )
                return self.terminal(dfa, "regex")
            case Choice(choices):
                return self.terminal(literals(choices, self.limits.regular), "choice")
            case Ebnf():
                return self.grammar(part)
            case JsonSchema() | JsonObject():
                value = JsonValue(self.compile_schema(part), Layout(part.whitespace))
                return self.leaf(value)
            case Tag():
                return self.tag(part, part.begin, f"{path}/content", depth)
            case TriggeredTags():
                return self.triggered(part, path, depth)
            case Series(parts):
                return ast.sequence(
                    self.expression(p, f"{path}/parts/{i}", depth) for i, p in enumerate(parts)
                )
            case AnyOf(options):
                if not options:
                    raise ConstraintError(path, "any_of", "there are no options")
                return ast.alternatives(
                    self.expression(p, f"{path}/options/{i}", depth) for i, p in enumerate(options)
                )
            case Repeated(inner, minimum, maximum):
                _check_bounds(minimum, maximum)
                return ast.Repeat(self.expression(inner, f"{path}/part", depth), minimum, maximum)
            case JsonString(content):
                return self.json_string(content, f"{path}/content", depth)
            case _:
                raise ConstraintError(path, "kind", f"{type(part).__name__} is not a part of a tag")

    # -- leaves -----------------------------------------------------------------------------

    def terminal(self, dfa: Dfa, keyword: str) -> ast.Expression:
        if dfa.is_empty:
            raise EmptyConstraintError("", keyword, "no text matches")
        return ast.Terminal(dfa)

    def leaf(self, thing: Foreign) -> ast.Foreign:
        self.foreign.append(thing)
        return ast.Foreign(len(self.foreign) - 1)

    def special(self, token_id: int) -> ast.Foreign:
        if token_id not in self._special:
            self._special[token_id] = self.leaf(SpecialToken(token_id))
        return self._special[token_id]

    def fixed(self, text: str) -> ast.Expression:
        """A text, in which each special token's text may also be that token."""
        parts: list[ast.Expression] = []
        at = 0
        for found in self._special_texts.finditer(text):
            if found.start() > at:
                parts.append(ast.Terminal(literal(text[at : found.start()])))
            token = self.special(self.special_ids[found.group()])
            parts.append(ast.Alternatives((ast.Terminal(literal(found.group())), token)))
            at = found.end()
        if at < len(text) or not parts:
            parts.append(ast.Terminal(literal(text[at:])))
        return ast.sequence(parts)

    def free_text(self, part: FreeText) -> ast.Expression:
        dfa, least, most = self.free(part.excluded), part.min_tokens, part.max_tokens
        _check_bounds(least, most, "max_tokens")
        if most == 0:
            return ast.Terminal(EPSILON)
        if (least, most) == (0, None):
            return ast.Terminal(dfa)
        some = self.leaf(BoundedText(dfa, least, most))
        return some if least else ast.Alternatives((ast.Terminal(EPSILON), some))

    def free(self, excluded: tuple[str, ...]) -> Dfa:
        if "" in excluded:
            raise ConstraintError("", "excluded", "the empty text occurs in every text")
        if not excluded:
            return any_text()
        occurs = concat(any_text(), union_all(map(literal, excluded)), any_text())
        return any_text().difference(occurs, self.limits.regular)

    def grammar(self, part: Ebnf) -> ast.Expression:
        """An EBNF grammar's rules under names of its own."""
        return self.include(parse_ebnf(part))

    def include(self, found: ast.Rules) -> ast.Expression:
        """Another grammar's rules under names of their own."""
        prefix = f"{self._num_grammars}:"
        self._num_grammars += 1
        for name, expression in found.rules.items():
            self.rules[prefix + name] = ast.renamed(expression, prefix)
        return ast.Call(prefix + found.start)

    def json_string(self, content: Part, path: str, depth: int) -> ast.Expression:
        """The JSON strings of the texts of ``content``: each terminal's spellings in a string."""
        texts = TagCompiler({}, self.compile_schema, self.limits)
        texts.rules[_ROOT] = texts.expression(content, path, depth)
        if texts.foreign:
            raise ConstraintError(path, "json_string", "only texts can be in a JSON string")

        def spelled(leaf: ast.Leaf) -> ast.Expression:
            if isinstance(leaf, ast.Terminal):
                return ast.Terminal(json_string_body(leaf.dfa, self.limits.regular))
            return leaf

        rules = {name: ast.map_leaves(each, spelled) for name, each in texts.rules.items()}
        quote = ast.Terminal(literal('"'))
        return ast.Sequence((quote, self.include(ast.Rules(rules, _ROOT)), quote))

    # -- tags -------------------------------------------------------------------------------

    def tag(self, tag: Tag, begin: str, path: str, depth: int) -> ast.Expression:
        """A tag of whose beginning only ``begin`` is still to come."""
        content = tag.content
        if isinstance(content, FreeText) and tag.end and tag.end not in content.excluded:
            content = replace(content, excluded=(*content.excluded, tag.end))
        inner = self.expression(content, path, depth)
        parts = [inner, self.fixed(tag.end)]
        return ast.sequence([self.fixed(begin), *parts] if begin else parts)

    def triggered(self, part: TriggeredTags, path: str, depth: int) -> ast.Expression:
        _check_bounds(part.minimum, part.maximum)
        triggers = tuple(dict.fromkeys(part.triggers or (t.begin for t in part.tags)))
        if not part.tags or "" in triggers:
            raise ConstraintError("", "tags", "there are no tags, or one that begins with nothing")
        # A trigger that another one begins is never complete before it.
        triggers = tuple(
            t for t in triggers if not any(t != u and t.startswith(u) for u in triggers)
        )
        for i, tag in enumerate(part.tags):
            if not any(tag.begin.startswith(t) for t in triggers):
                raise ConstraintError(
                    f"{path}/tags/{i}/begin", "triggers", "the tag begins with none of the triggers"
                )
        forbidden = (*triggers, *part.excluded)
        quiet = self.free(forbidden)
        options: list[ast.Expression] = []
        for trigger in triggers:
            rest = ast.alternatives(
                self.tag(t, t.begin[len(trigger) :], f"{path}/tags/{i}/content", depth)
                for i, t in enumerate(part.tags)
                if t.begin.startswith(trigger)
            )
            options.append(ast.Sequence((ast.Terminal(self.until(trigger, forbidden)), rest)))
            if trigger in self.special_ids:
                token = self.special(self.special_ids[trigger])
                options.append(ast.Sequence((ast.Terminal(quiet), token, rest)))
        tags = ast.Repeat(ast.alternatives(options), part.minimum, part.maximum)
        return ast.Sequence((tags, ast.Terminal(quiet)))

    def until(self, trigger: str, forbidden: tuple[str, ...]) -> Dfa:
        """The texts that end with ``trigger``, and hold nothing forbidden before its end."""
        some = any_text().difference(EPSILON)
        early = concat(any_text(), union_all(map(literal, forbidden)), some)
        ends = concat(any_text(), literal(trigger))
        return ends.difference(early, self.limits.regular)


def _check_bounds(minimum: int, maximum: int | None, keyword: str = "maximum") -> None:
    if minimum < 0 or (maximum is not None and maximum < minimum):
        raise ConstraintError("", keyword, "the bounds are out of order")
