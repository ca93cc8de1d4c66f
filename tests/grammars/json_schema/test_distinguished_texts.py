"""Labelled names and languages are distinguished over any base, and reachable labels are exact."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.grammars.json_schema.schema.layout import Layout
from ramet.grammars.json_schema.text.literal_text import EXCLUDED, LiteralText
from ramet.grammars.json_schema.text.text_lexemes import DfaText, KeyClosing
from ramet.grammars.pushdown.json_text import key_body, spellings
from ramet.grammars.pushdown.labelled_dfa import LabelledDfa
from ramet.grammars.pushdown.state_table import StateTable
from ramet.grammars.pushdown.tables import NAME_LABEL, REACH
from ramet.grammars.regular import RegularLimits, literals, regex_dfa

PATTERNS = ["a*", "(ab|c)?", '[a-d"\\\\]{0,3}', "x.*", '"?', "aé?", "/|\n"]
CLOSING = KeyClosing(Layout("compact"))
BASE = 1

names = st.text('abcdx"\\/é\n', max_size=4)


def base_of(pattern: str) -> DfaText:
    body = key_body(regex_dfa(pattern), RegularLimits())
    return DfaText(CLOSING, LabelledDfa.of([(BASE, body)]), ("of", pattern))


def label_of(state_table: StateTable, start: int, spelled: bytes) -> int:
    """The label of a name by its spelling; -1 if it isn't one."""
    state = start
    for byte in b'%s"' % spelled:
        state = state_table.target(state, byte)
        if state < 0:
            return -1
    return int(state_table.states[state, NAME_LABEL])


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(PATTERNS), st.dictionaries(names, st.booleans(), min_size=1, max_size=6),
    st.lists(names, max_size=6),
)  # fmt: skip
def test_given_names_over_a_language(
    pattern: str, given_names: dict[str, bool], others: list[str]
) -> None:
    texts = {n: EXCLUDED if out else 2 + i for i, (n, out) in enumerate(given_names.items())}
    state_table = StateTable(100_000)
    start = state_table.install(LiteralText(CLOSING, texts, base_of(pattern)))
    language = regex_dfa(pattern)
    for name in [*texts, *others]:
        expected = texts.get(name, BASE if language.accepts(name.encode()) else -1)
        for choice in (0, -1):
            spelled = b"".join(spellings(c)[choice] for c in name)
            assert label_of(state_table, start, spelled) == expected, (name, spelled)
    assert_reach_is_exact(state_table, start)


def assert_reach_is_exact(state_table: StateTable, start: int) -> None:
    targets: dict[int, set[int]] = {}
    queue = [start]
    while queue:
        state = queue.pop()
        if state in targets:
            continue
        row = {state_table.target(state, byte) for byte in range(256)}
        targets[state] = {target for target in row if target >= 0}
        queue += targets[state]
    labels = {s: 1 << label if (label := int(state_table.states[s, NAME_LABEL])) >= 0 else 0
              for s in targets}  # fmt: skip
    found = dict(labels)
    changed = True
    while changed:
        changed = False
        for state, after in targets.items():
            bits = found[state]
            for target in after:
                bits |= found[target]
            changed |= bits != found[state]
            found[state] = bits
    for state, bits in found.items():
        if bits and not labels[state]:
            assert state_table.bits_at(int(state_table.states[state, REACH])) == bits


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.text("abé", max_size=4), max_size=4), min_size=1, max_size=4))
def test_languages_with_labels(sets: list[set[str]]) -> None:
    disjoint = [texts - set().union(*sets[:i]) for i, texts in enumerate(sets)]
    parts = [(3 + i, literals(sorted(texts))) for i, texts in enumerate(disjoint)]
    union = LabelledDfa.of(parts)
    for text in {"", "a", "ab", "éa"}.union(*sets):
        state = 0 if len(union.table) else -1
        for byte in text.encode():
            state = int(union.transitions[state, byte]) if state >= 0 else -1
        label = int(union.labels[state]) if state >= 0 else -1
        assert label == next((3 + i for i, t in enumerate(disjoint) if text in t), -1)
