"""Rendering a chat template is bounded in time and size, whatever the template does."""

from __future__ import annotations

import random
import resource
import time

import pytest

from ramet.runtime.api.errors import ChatTemplateError, InvalidParameterError, ModelLoadError
from ramet.runtime.testing.scripted_tokenizer import scripted_tokenizer
from ramet.runtime.tokenizer import template_sandbox
from ramet.runtime.tokenizer.chat_template import ChatTemplate

TOKENIZER = scripted_tokenizer()
USER = {"role": "user", "content": "hello\nthere"}
BIG = "{% set b = 'x' * 100000 %}"

BOMBS = {
    "times": "{{ 'a' * 10**9 }}",
    "times of a list": "{{ ([0] * 1000000000) | length }}",
    "times from the left": "{{ 1000000000 * 'a' }}",
    "power": "{{ 9 ** 9 ** 9 }}",
    "squares": "{% set n = namespace(x=7) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}"
    "{% endfor %}",
    "doubled by plus": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "doubled by tilde": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "doubled by a list": "{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "doubled by a block": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = y %}{% endfor %}",
    "doubled by a macro": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}"
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = m(n.x) %}{% endfor %}",
    "doubled by join": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] | join %}{% endfor %}",
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops that print": "{% for i in range(99999) %}{% for j in range(99999) %}xxxxxxxxxxxxxxx"
    "{% endfor %}{% endfor %}",
    "loops in filters": "{% for i in range(99999) %}{{ range(99999) | list | length }}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "recursive loop": "{% for x in [[1]] recursive %}{{ loop([[1], [1]]) }}{% endfor %}",
    "center": "{{ 'a' | center(10000000000) }}",
    "ljust": "{{ 'a'.ljust(10000000000) }}",
    "zfill": "{{ 'a'.zfill(10000000000) }}",
    "tabs": "{{ ('\\t' * 100000).expandtabs(100000) }}",
    "indent": BIG + "{{ (['a'] * 90000) | join('\n') | indent(100000) }}",
    "indent by a text": BIG + "{{ (['a'] * 90000) | join('\n') | indent(b) }}",
    "replace": BIG + "{{ b.replace('x', b) }}",
    "replace nothing": BIG + "{{ b.replace('', b) }}",
    "replace filter": BIG + "{{ b | replace('x', b) }}",
    "mapped replace": BIG + "{{ [b] | map('replace', 'x', b) | list | length }}",
    "join": BIG + "{{ b.join(b) }}",
    "join filter": BIG + "{{ b | join(b) }}",
    "join of a range": BIG + "{{ range(99999) | join(b) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "nested format": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "repeated format": BIG + "{{ ('{a}' * 9000).format_map({'a': b}) }}",
    "format filter": "{{ '%1000000000d' | format(1) }}",
    "batch": "{{ [1] | batch(1000000000, 'x') | list | length }}",
    "slice": "{{ [1] | slice(1000000000, 'x') | list | length }}",
    "json indent": "{{ [1] | tojson(indent=1000000000) }}",
    "sum of lists": "{{ ([[0] * 10000] * 10000) | sum(start=[]) | length }}",
    "copies": BIG + "{% set n = namespace(x=[]) %}{% for i in range(9000) %}"
    "{% set n.x = n.x + [b[1:]] %}{% endfor %}",
    "splits": BIG + "{% set n = namespace(x=[]) %}{% for i in range(9000) %}"
    "{% set n.x = n.x + ['ab'.join(['', b]).split('b', 1)] %}{% endfor %}",
    "lorem ipsum": "{{ lipsum(n=1000000) }}",
    "wrap": "{{ (('a ' * 90000) | wordwrap(1, wrapstring='x' * 90000)) }}",
}


@pytest.fixture(autouse=True)
def _shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_sandbox, "_MAX_CPU_S", 0.5)


@pytest.mark.parametrize("source", BOMBS.values(), ids=list(BOMBS))
def test_a_bomb_is_refused_before_it_takes_time_or_memory(source: str) -> None:
    template = ChatTemplate(source, TOKENIZER)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ChatTemplateError, match="chat template"):
        template.render([USER])
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 200 << 10


USUAL = [
    ("{{ messages[0].content | indent(2) }}", "hello\n  there"),
    ("{{ messages | length * 2 ** 3 }}", "8"),
    ("{{ '=' * 10 }}{{ 'a' ~ 1 ~ none }}", "==========a1None"),
    ("{{ '* %s %5.1f%%' % ('x', 2) }}", "* x   2.0%"),
    ("{{ '{} {name}'.format(1, name='n') }}", "1 n"),
    ("{{ messages[0]['content'].split('\n')[-1].replace('h', 'HH') }}", "tHHere"),
    ("{{ ['a', 'b'] | join(', ') }}{{ [1, 2] | sum }}", "a, b3"),
    ("{{ [{'n': 1}, {'n': 2}] | map(attribute='n') | list }}", "[1, 2]"),
    ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}{% set y %}b{% endset %}{{ y }}", "<a>b"),
    (
        "{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}",
        "123",
    ),
    ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
    ("{% filter upper %}a{{ 'b' }}{% endfilter %}{{ messages[1:] }}", "AB[]"),
    ("{% call(x) m2() %}{{ x }}{% endcall %}", None),
    ("{% macro w() %}[{{ caller() }}]{% endmacro %}{% call w() %}in{% endcall %}", "[in]"),
    ("{{ undefined_name }}{{ messages[0].role | title }}", "User"),
    ("{{ {'b': 1, 'a': [2]} | tojson(indent=1) }}", '{\n "b": 1,\n "a": [\n  2\n ]\n}'),
]


@pytest.mark.parametrize(("source", "expected"), USUAL)
def test_usual_templates_print_what_they_did(source: str, expected: str | None) -> None:
    template = ChatTemplate(source, TOKENIZER)
    if expected is None:
        with pytest.raises(ChatTemplateError):
            template.render([USER])
        return
    assert "".join(text for text, _ in template.render([USER])) == expected


def test_long_conversations_are_rendered() -> None:
    source = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m['content'] | trim }}"
        "{% if loop.last %}.{% endif %}{% endfor %}"
    )
    messages = [{"role": "user", "content": "word " * 1000}] * 400
    printed = "".join(text for text, _ in ChatTemplate(source, TOKENIZER).render(messages))
    assert len(printed) == 400 * (8 + 4999) + 1


def test_what_belongs_to_the_sandbox_cannot_be_set_by_a_client() -> None:
    for name in template_sandbox.RESERVED:
        with pytest.raises(InvalidParameterError):
            ChatTemplate("{{ 1 }}", TOKENIZER).render([USER], variables={name: 1})


def test_a_source_that_is_too_long_is_a_load_error() -> None:
    with pytest.raises(ModelLoadError, match="longer than"):
        ChatTemplate("x" * (template_sandbox.MAX_SOURCE_LEN + 1), TOKENIZER)


def test_mutated_templates_end_in_typed_errors() -> None:
    rng = random.Random(5)
    sources = [source for source, _ in USUAL] + list(BOMBS.values())
    words = ["{%", "%}", "{{", "}}", "for", "in", "if", "endfor", "set", "|", "(", ")", "~", "*"]
    began = time.thread_time()
    for _ in range(600):
        source = list(rng.choice(sources))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(source) + 1)
            source[at : at + rng.randint(0, 6)] = rng.choice([*words, rng.choice(sources), ""])
        try:
            template = ChatTemplate("".join(source), TOKENIZER)
        except ModelLoadError:
            continue
        try:
            template.render([USER])
        except ChatTemplateError:
            continue
        if time.thread_time() - began > 20:
            break
