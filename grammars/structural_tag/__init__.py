"""Structural tags: free and fixed texts, tags, and any other constraints, in one grammar."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ramet.grammars.constraints import (
    AnyOf,
    FreeText,
    JsonObject,
    JsonSchema,
    Repeated,
    Series,
    StructuralTag,
    Tag,
    TriggeredTags,
)
from ramet.grammars.ebnf import build_network
from ramet.grammars.errors import ConstraintError
from ramet.grammars.json_schema.compile import CompiledSchema
from ramet.grammars.limits import CompileLimits
from ramet.grammars.pushdown.context_table import Context, ContextTable

from .automaton import TagAutomaton
from .contexts import TokenBounds, context_of
from .expressions import SpecialToken, TagCompiler

__all__ = ["structural_tag_start"]


def structural_tag_start(
    constraint: StructuralTag,
    special_ids: Mapping[str, int],
    compile_schema: Callable[[JsonSchema | JsonObject], CompiledSchema],
    limits: CompileLimits,
) -> Callable[[ContextTable], Context]:
    """A function that creates a structural tag's first context in a pushdown table.

    Args:
        constraint: the structural tag.
        special_ids: the special tokens that fixed texts may be spelled with, by text.
        compile_schema: compiles the embedded JSON schemas.
        limits: bounds on the whole.

    Raises:
        ConstraintError: with ``path`` a JSON pointer to the part, such as ``/root/parts/1``.
    """
    compiler = TagCompiler(special_ids, compile_schema, limits)
    try:
        network = build_network(compiler.compile(constraint.root), limits.regular)
    except ConstraintError as error:
        if error.path:
            raise
        raise type(error)("/root", error.keyword, error.reason) from None
    has_special = any(isinstance(thing, SpecialToken) for thing in compiler.foreign)

    def relaxed(pushdown: ContextTable) -> Context:
        without_bounds = _without_bounds(constraint)
        return structural_tag_start(without_bounds, special_ids, compile_schema, limits)(pushdown)

    def start(pushdown: ContextTable) -> Context:
        # A grammar has one pushdown table, and both keep what they have computed.
        automaton = TagAutomaton(network, compiler.foreign, limits)
        pushdown.has_special |= has_special
        if automaton.counts_tokens:
            pushdown.token_bounds = TokenBounds(automaton, relaxed)
        return context_of(pushdown, automaton, automaton.configurations(automaton.start))

    return start


def _without_bounds(part: Any) -> Any:
    """A part of a tag, or several, without bounds on tokens."""
    if isinstance(part, tuple):
        return tuple(map(_without_bounds, part))
    if isinstance(part, FreeText):
        return part if part.max_tokens == 0 else FreeText(part.excluded)
    if isinstance(part, AnyOf | Repeated | Series | StructuralTag | Tag | TriggeredTags):
        inner = {f.name: _without_bounds(getattr(part, f.name)) for f in dataclasses.fields(part)}
        return dataclasses.replace(part, **inner)
    return part
