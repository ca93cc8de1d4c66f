"""Compiles constraints to grammars, and caches the grammars."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal

from .constraints import (
    Choice,
    Constraint,
    Ebnf,
    JsonObject,
    JsonSchema,
    Regex,
    StructuralTag,
)  # fmt: skip
from .constraints.serialize import check_fields, content_key
from .ebnf import ebnf_automaton
from .ebnf.counted_lexeme import GrammarLexeme
from .ebnf.regex_network import regex_automaton, size_of
from .errors import ConstraintError, EmptyConstraintError, GrammarTooComplexError
from .free_memory import release_free_memory
from .grammar import Grammar
from .json_schema.compile import CompiledSchema
from .json_schema.contexts.common import COMMON_SCHEMA, NUMBER_FORMS, install_common
from .json_schema.schema.number_form import NumberForm
from .json_schema.solver.value_sets.languages import Languages
from .limits import CompileLimits, RegularLimits
from .masks.context_independent import ContextIndependentMasks, new_context_independent_masks
from .masks.vocabulary import Vocabulary
from .pushdown.automaton import AutomatonLexeme, Whole
from .pushdown.context_table import Context
from .pushdown.dfa_automaton import DfaAutomaton
from .pushdown.lexemes import DfaLexeme
from .pushdown.listed_texts import ListedLexeme
from .pushdown.pushdown_table import PushdownTable
from .regular import Dfa, intersect_all, literals, regex_dfa
from .regular.automata.store import AutomatonStore
from .regular.formats import decoded_members
from .regular.regex.compile import condition_dfas
from .regular.regex.parser import parse
from .regular.regex.syntax import has_assertions
from .stats import GrammarStats
from .structural_tag import structural_tag_start

RegularBackend = Literal["native", "outlines-core"]

_MAX_SHARED_BYTES = 24 << 20
"""Grammars share a state table up to this much memory; the next ones start a new one."""

Start = Callable[[PushdownTable], Context]
"""Creates a constraint's first context in a pushdown table."""

_NUM_COMMON = 100
"""Bound on the precomputed transitions of the table for any JSON value; it has fewer."""

_PREPARE_S = 0.002
"""How long a compilation prepares likely masks (see ``Preparation``)."""

_COUNTS = 4
"""About how often the memory of all grammars is counted while their number doubles."""

_SHEDS = 16
"""The share of the memory that is freed when there is too much."""

_MAX_REGEX_SIZE = 150
"""Code point sets of a regex that becomes one automaton, repetitions written out."""

_LARGE_PRODUCT = 8
"""How many times the states of other automata an intersection of lookaheads may have."""

_MAX_CHOICE_DFA = 20_000
"""Characters of a choice that becomes a minimal automaton."""

_PATIENCE_S = 0.1
"""How long a compilation waits for one that is running."""


class GrammarCompiler:
    """Compiles constraints for one vocabulary, and caches grammars by content.

    May be used from several threads.

    Args:
        vocab: the vocabulary of the masks.
        limits: bounds on each grammar.
        capacity: the most grammars in the cache (least recently used are dropped).
        max_bytes: approximate bound on their memory.
        regular_backend: computes the masks of ``Regex`` and ``Choice``; "outlines-core" needs
            the package of that name.
        store: a folder in which automata are kept from one process to the next.
    """

    def __init__(
        self,
        vocab: Vocabulary,
        limits: CompileLimits | None = None,
        *,
        capacity: int = 1024,
        max_bytes: int = 256 << 20,
        regular_backend: RegularBackend = "native",
        store: AutomatonStore | None = None,
    ) -> None:
        self.vocab = vocab
        self.limits = limits or CompileLimits()
        self._capacity = capacity
        self._regular_backend = regular_backend
        self._max_bytes = max_bytes
        self._store = store
        self._languages = Languages(
            self.limits, store=store, max_bytes=min(64 << 20, max_bytes // 4)
        )
        self._shared: ContextIndependentMasks | None = None
        self._any_json: dict[tuple[str, bool, str, str], PushdownTable] = {}
        self._grammars: OrderedDict[str, Grammar] = OrderedDict()
        self._num_uncounted = 0
        self._counted_bytes = 0
        self._forgotten_bytes = 0
        self._grammars_lock = threading.Lock()
        self._compile_lock = threading.Lock()

    def warm(self) -> None:
        """Computes in advance what most schemas need: any JSON value, common formats and bounds.
        Takes a tenth of a second or two."""
        with self._compile_lock:
            for form in NUMBER_FORMS:
                likely = JsonSchema(COMMON_SCHEMA, integers=form.integers, digits=form.digits)
                self._any_json_like(likely, self._shared_insides())
                compile_schema(likely, self._languages, self.limits)

    def find(self, constraint: Constraint, key: str | None = None) -> Grammar | None:
        """The grammar of a constraint if it is cached; never waits for a compilation.

        ``key`` is its ``content_key``, where that is known.
        """
        return self._remembered(key or content_key(constraint))

    def compile(self, constraint: Constraint, key: str | None = None) -> Grammar:
        """The grammar of a constraint; ``key`` as for ``find``.

        Languages are shared between compilations, so these go one at a time; but none waits long
        for another, which may take seconds: it then shares nothing.

        Raises:
            ConstraintError: it can't be honoured exactly; names the place, keyword and reason.
            GrammarTooComplexError: it needs more than the limits allow.
        """
        key = key or content_key(constraint)
        if not self._compile_lock.acquire(timeout=_PATIENCE_S):
            return self._remember(
                key, compile_constraint(constraint, self.vocab, limits=self.limits)
            )
        try:
            return self._remembered(key) or self._remember(key, self._compile(constraint))
        finally:
            self._compile_lock.release()

    def _remember(self, key: str, grammar: Grammar) -> Grammar:
        with self._grammars_lock:
            self._grammars[key] = grammar
            if len(self._grammars) > self._capacity:
                self._grammars.popitem(last=False)
            self._num_uncounted += 1
            self._counted_bytes += grammar.num_bytes
            # Grammars grow while they are used, so all are counted again, though not each time.
            is_due = self._num_uncounted * _COUNTS >= len(self._grammars)
            if is_due or self._counted_bytes > self._max_bytes:
                self._count()
            is_much_free = self._forgotten_bytes > self._max_bytes // _SHEDS
            if is_much_free:
                self._forgotten_bytes = 0
        if is_much_free:
            release_free_memory()
        return grammar

    def _count(self) -> None:
        """Counts all memory, and drops grammars beyond the bounds."""
        self._num_uncounted = 0
        self._counted_bytes = self._num_bytes()
        while len(self._grammars) > 1 and self._counted_bytes > self._max_bytes:
            room = self._max_bytes // _SHEDS
            while len(self._grammars) > 1 and room > 0:
                room -= self._grammars.popitem(last=False)[1].num_bytes
            before, self._counted_bytes = self._counted_bytes, self._num_bytes()
            self._forgotten_bytes += before - self._counted_bytes

    def _num_bytes(self) -> int:
        grammars = self._grammars.values()
        shared = {id(g.context_independent): g.context_independent for g in grammars}
        tables = sum(i.num_bytes + i.state_table.num_bytes for i in shared.values())
        return sum(g.num_bytes for g in grammars) + tables + self._languages.num_bytes

    def stats(self) -> GrammarStats:
        """Memory and counts of the cache."""
        store = self._store
        with self._grammars_lock:
            return GrammarStats(
                num_grammars=len(self._grammars),
                num_bytes=self._num_bytes(),
                num_stored_bytes=0 if store is None else store.num_bytes,
                num_read=0 if store is None else store.num_hits,
            )

    def _remembered(self, key: str) -> Grammar | None:
        with self._grammars_lock:
            known = self._grammars.get(key)
            if known is not None and known.is_crowded:
                del self._grammars[key]
                return None
            if known is not None:
                self._grammars.move_to_end(key)
            return known

    def _compile(self, constraint: Constraint) -> Grammar:
        if self._regular_backend == "outlines-core" and isinstance(constraint, Regex | Choice):
            from .outlines_backend import compile_with_outlines  # an optional dependency

            check_fields(constraint)
            return compile_with_outlines(constraint, self.vocab, limits=self.limits)
        start = start_of(constraint, self._languages, self.limits, self.vocab.special_ids)
        if isinstance(constraint, Regex | Choice | Ebnf):
            return _own_grammar(start, self.vocab, self.limits)
        shared = self._shared_insides()
        like = (
            self._any_json_like(constraint, shared) if isinstance(constraint, JsonSchema) else None
        )
        grammar = _prepared(Grammar(start, shared, self.limits, like))
        grammar.for_text = _decoder(constraint, self.vocab, self.limits)
        return grammar

    def _shared_insides(self) -> ContextIndependentMasks:
        if self._shared is None or self._shared.state_table.num_bytes > _MAX_SHARED_BYTES:
            self._shared = new_context_independent_masks(self.vocab, self.limits, is_shared=True)
            self._any_json.clear()
            install_common(self._shared.state_table, self._languages)
        return self._shared

    def _any_json_like(
        self, constraint: JsonSchema, shared: ContextIndependentMasks
    ) -> PushdownTable | None:
        """A pushdown table with the contexts of any JSON value: most schemas have a place for
        one."""
        if constraint.whitespace == "pretty":
            return None
        key = (
            constraint.whitespace, constraint.any_order, constraint.integers, constraint.digits
        )  # fmt: skip
        known = self._any_json.get(key)
        if known is None:
            pushdown = self._any_json[key] = known = PushdownTable(self.limits, shared.state_table)
            anything = dataclasses.replace(constraint, schema=True, documents={}, dialect="auto")
            pushdown.intern(compile_schema(anything, self._languages, self.limits).start(pushdown))
            for _ in itertools.islice(pushdown.likely_transitions(), _NUM_COMMON):
                pass
        return known


def compile_constraint(
    constraint: Constraint, vocab: Vocabulary, *, limits: CompileLimits | None = None
) -> Grammar:
    """The grammar of a constraint, with no cache. See ``GrammarCompiler.compile``."""
    limits = limits or CompileLimits()
    start = start_of(constraint, Languages(limits), limits, vocab.special_ids)
    grammar = _own_grammar(start, vocab, limits)
    if isinstance(constraint, JsonSchema | StructuralTag):
        grammar.for_text = _decoder(constraint, vocab, limits)
    return grammar


def _decoder(
    constraint: Constraint, vocab: Vocabulary, limits: CompileLimits
) -> Callable[[bytes], Grammar | None]:
    """Makes, for one text, the grammar that knows which of its strings are of which format."""

    def for_text(text: bytes) -> Grammar | None:
        decoded = decoded_members(text) if '"format"' in content_key(constraint) else {}
        if not decoded:
            return None
        languages = Languages(limits, decoded=decoded)
        try:
            start = start_of(constraint, languages, limits, vocab.special_ids)
        except EmptyConstraintError:
            return None  # None of the strings helps.
        return _own_grammar(start, vocab, limits)

    return for_text


def _own_grammar(start: Start, vocab: Vocabulary, limits: CompileLimits) -> Grammar:
    """A grammar that shares nothing. Its first mask shows whether later ones can be made."""
    grammar = Grammar(start, new_context_independent_masks(vocab, limits), limits)
    if grammar.is_crowded:
        raise GrammarTooComplexError(
            "", "states", f"the first token alone needs {grammar.num_states} automaton states"
        )
    return _prepared(grammar)


def _prepared(grammar: Grammar) -> Grammar:
    grammar.preparation.run(_PREPARE_S)
    return grammar


def compile_schema(
    constraint: JsonSchema | JsonObject, languages: Languages, limits: CompileLimits
) -> CompiledSchema:
    """The schema of a JSON constraint, checked."""
    if isinstance(constraint, JsonObject):
        constraint = JsonSchema({"type": "object"}, constraint.whitespace, digits=constraint.digits)
    return CompiledSchema(
        constraint.schema, constraint.documents, any_order=constraint.any_order,
        whitespace=constraint.whitespace,
        number_form=NumberForm(constraint.integers, constraint.digits),
        formats=constraint.formats, dialect=constraint.dialect, languages=languages,
        limits=limits,
    )  # fmt: skip


def start_of(
    constraint: Constraint,
    languages: Languages,
    limits: CompileLimits,
    special_ids: Mapping[str, int],
) -> Start:
    """The first context of the constraint's texts."""
    try:
        check_fields(constraint)
        match constraint:
            case JsonSchema() | JsonObject():
                return compile_schema(constraint, languages, limits).start
            case Regex():
                return _regex(constraint, languages, limits)
            case Choice():
                return _choice(constraint, limits)
            case Ebnf():
                automaton = ebnf_automaton(constraint, limits.regular)
                return lambda _: Whole(GrammarLexeme(automaton))
            case StructuralTag():
                return structural_tag_start(
                    constraint, special_ids, lambda c: compile_schema(c, languages, limits), limits
                )
    except RecursionError:
        raise GrammarTooComplexError("", "", "the constraint nests too deep") from None
    raise ConstraintError("", "kind", f"{type(constraint).__name__} is not a known constraint")


def _regex(constraint: Regex, languages: Languages, limits: CompileLimits) -> Start:
    """One automaton; a large one is lazy: built as it is read."""
    dialect, pattern = constraint.dialect, constraint.pattern
    narrow = constraint.classes == "ascii"
    node = parse(pattern, dialect, narrow=narrow)
    try:
        if size_of(node) > _MAX_REGEX_SIZE and not has_assertions(node):
            automaton = regex_automaton(node, limits.regular)
            return lambda _: Whole(GrammarLexeme(automaton))
        dfa = languages.stored(
            f"whole {dialect} {'ascii ' if narrow else ''}{pattern}",
            lambda: regex_dfa(pattern, dialect=dialect, narrow=narrow, limits=limits.regular),
        )
        return _whole(dfa, "regex")
    except EmptyConstraintError:
        if not narrow:
            raise
        # Narrowed classes may leave no text.
        return _regex(dataclasses.replace(constraint, classes="dialect"), languages, limits)
    except GrammarTooComplexError:
        conditions = condition_dfas(node, limits.regular)
        if len(conditions) == 1:
            raise
        return _together(conditions, limits.regular)


def _together(conditions: list[Dfa], limits: RegularLimits) -> Start:
    """The intersection of some languages; a large one is built as it is read."""
    larger = dataclasses.replace(limits, max_states=_LARGE_PRODUCT * limits.max_states)
    dfa = intersect_all(conditions, larger)
    if dfa.is_empty:
        raise EmptyConstraintError("", "regex", "no text matches")
    automaton = DfaAutomaton(dfa)
    return lambda _: Whole(AutomatonLexeme(automaton))


def _choice(constraint: Choice, limits: CompileLimits) -> Start:
    """One automaton of few texts; of many, a lazy trie."""
    size = sum(map(len, constraint.choices))
    if size <= _MAX_CHOICE_DFA:
        return _whole(literals(constraint.choices, limits.regular), "choice")
    if size > limits.max_literal_bytes:
        raise GrammarTooComplexError(
            "", "choice", f"the choices have more than {limits.max_literal_bytes} characters"
        )
    lexeme = ListedLexeme(constraint.choices)
    return lambda _: Whole(lexeme)


def _whole(dfa: Dfa, keyword: str) -> Start:
    if dfa.is_empty:
        raise EmptyConstraintError("", keyword, "no text matches")
    return lambda _: Whole(DfaLexeme(dfa))
