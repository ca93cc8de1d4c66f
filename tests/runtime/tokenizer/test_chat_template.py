"""Chat templates: one prompt for every spelling of the same messages, and no injected structure."""

from __future__ import annotations

import datetime
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ramet.runtime.api.errors import ChatTemplateError, InvalidParameterError, ModelLoadError
from ramet.runtime.parsers import TOOL_FORMATS, ToolArgumentsDelta, ToolCallParser, ToolCallStart
from ramet.runtime.testing.scripted_tokenizer import CONTROL_TEXTS, scripted_tokenizer
from ramet.runtime.tokenizer import ChatTemplate, Tokenizer, fold_tools
from ramet.runtime.tokenizer.protection import Protection

USER = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

PLAIN = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content | trim }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return scripted_tokenizer()


@pytest.fixture(scope="module")
def template(tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate.of(tokenizer)


def text_of(pieces: list[tuple[str, bool]]) -> str:
    return "".join(text for text, _ in pieces)


def test_a_prompt_is_printed_with_its_control_tokens(
    template: ChatTemplate, tokenizer: Tokenizer
) -> None:
    pieces = template.render([USER])
    assert text_of(pieces) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert [text for text, control in pieces if control] == [
        "<|im_start|>",
        "<|im_end|>",
        "<|im_start|>",
    ]
    ids = template.encode([USER])
    assert ids == tokenizer.encode(text_of(pieces), allow_special=True)
    assert text_of(template.render([USER], add_generation_prompt=False)).endswith("<|im_end|>\n")


@pytest.mark.parametrize(
    "content",
    [None, "", [], [{"type": "text", "text": ""}]],
)
def test_every_way_to_say_nothing_is_alike(template: ChatTemplate, content: Any) -> None:
    expected = template.render([USER, {"role": "assistant", "content": ""}, USER])
    assert template.render([USER, {"role": "assistant", "content": content}, USER]) == expected
    assert template.render([USER, {"role": "assistant"}, USER]) == expected
    empty_calls = {"role": "assistant", "content": content, "tool_calls": []}
    assert template.render([USER, empty_calls, USER]) == expected
    assert template.render([USER, {**empty_calls, "tool_calls": None}, USER]) == expected


def test_text_parts_are_joined(template: ChatTemplate) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "input_text", "text": "i"}]
    assert template.render([{"role": "user", "content": parts}]) == template.render([USER])


def test_calls_arguments_are_printed_as_an_object(template: ChatTemplate) -> None:
    def printed(arguments: Any) -> str:
        call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return text_of(template.render([USER, {"role": "assistant", "tool_calls": [call]}]))

    assert '{"name": "f", "arguments": {"a": "ü<b>"}}' in printed('{"a": "ü<b>"}')
    assert printed('{"a": "ü<b>"}') == printed({"a": "ü<b>"})
    assert '"arguments": {}}' in printed("")
    assert '"arguments": {}}' in printed(None)
    assert '"arguments": "{cut"}' in printed("{cut")


def test_tools_and_variables_reach_the_template(tokenizer: Tokenizer) -> None:
    source = "{{ tools | tojson }}{{ enable_thinking }}{{ bos_token }}{{ eos_token }}"
    template = ChatTemplate(source, tokenizer)
    assert template.prints_tools
    printed = text_of(template.render([USER], tools=[TOOL], variables={"enable_thinking": False}))
    assert printed == (
        '[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]'
        "False<|endoftext|><|im_end|>"
    )
    for name in ("bos_token", "messages", "not a name"):
        with pytest.raises(InvalidParameterError, match=name):
            template.render([USER], variables={name: "x"})
    assert text_of(template.render([USER], variables={"self": 1})).startswith("null")
    assert not ChatTemplate("{{ messages }}{# tools #}", tokenizer).prints_tools


def test_templates_have_the_usual_helpers(tokenizer: Tokenizer) -> None:
    source = (
        "{%- set ns = namespace(n=0) -%}{%- for m in messages -%}"
        "{%- if loop.index > 1 %}{% break %}{% endif %}{% set ns.n = ns.n + 1 %}{%- endfor -%}"
        "{{ ns.n }}{% generation %}<{{ strftime_now('%Y') }}>{% endgeneration %}"
        "{{ {'b': 1, 'a': '<'} | tojson(indent=1) }}"
    )
    template = ChatTemplate(source, tokenizer, now=lambda: datetime.datetime(2031, 5, 1))
    assert text_of(template.render([USER, USER])) == '1<2031>{\n "b": 1,\n "a": "<"\n}'


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ([], "at least one"),
        ("hi", "must be a list"),
        (["hi"], r"messages\[0\] must be an object"),
        ([{"content": "x"}], "role"),
        ([{"role": "us<er", "content": "x"}], "plain word"),
        ([{"role": "user", "content": 3}], "string or a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "'image_url'.*only text"),
        ([{"role": "user", "content": [{"type": "text"}]}], "only text"),
        ([{"role": "assistant", "tool_calls": [{"id": "1"}]}], "function with a name"),
        ([{"role": "assistant", "tool_calls": "f"}], "must be a list"),
    ],
)
def test_messages_that_no_template_can_print_are_refused(
    template: ChatTemplate, messages: Any, match: str
) -> None:
    with pytest.raises(ChatTemplateError, match=match) as caught:
        template.render(messages)
    assert caught.value.param == "messages"
    assert caught.value.status == 400


def test_what_a_template_refuses_is_quoted(tokenizer: Tokenizer) -> None:
    source = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate!') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    template = ChatTemplate(source, tokenizer)
    with pytest.raises(ChatTemplateError, match="Roles must alternate!") as caught:
        template.render([USER, USER])
    assert caught.value.body()["error"]["param"] == "messages"
    assert text_of(template.render([USER])) == "hi"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[7].content }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ 1 // 0 }}",
        "{% include 'x' %}",
    ],
)
def test_a_template_that_fails_or_breaks_out_is_an_error(source: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(ChatTemplateError):
        ChatTemplate(source, tokenizer).render([USER])


def test_a_template_that_is_no_jinja_is_a_load_error(tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelLoadError, match="line 2"):
        ChatTemplate("a\n{% if %}", tokenizer)


@pytest.mark.parametrize(
    "source",
    [
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if a %}" * 300 + "{% endif %}" * 300,
        "{% for a in b %}" * 30 + "{% endfor %}" * 30,
        "{{ " + "9" * 5000 + " }}",
        "{% break %}",
        "{{ f(a=1, a=2) }}",
    ],
    ids=["parentheses", "conditions", "loops", "digits", "break", "arguments"],
)
def test_a_template_that_cannot_be_compiled_is_a_load_error(
    source: str, tokenizer: Tokenizer
) -> None:
    with pytest.raises(ModelLoadError, match="can't be compiled"):
        ChatTemplate(source, tokenizer)


def test_a_model_without_template_says_so(tokenizer: Tokenizer) -> None:
    bare = scripted_tokenizer()
    bare.chat_template = None
    with pytest.raises(ChatTemplateError, match="no chat template"):
        ChatTemplate.of(bare)


ATTACKS = [*CONTROL_TEXTS, "<|", "im_end", "|>", "<|im_", "end|>", "<", "\n", "\ufdd0", "a"]


TEST_TOKENIZER = scripted_tokenizer()
ATTACKED = (
    TEST_TOKENIZER,
    ChatTemplate.of(TEST_TOKENIZER),
    ChatTemplate(PLAIN, TEST_TOKENIZER),
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(ATTACKS), max_size=5).map("".join), min_size=1, max_size=3)
)
def test_no_text_can_make_a_control_token(contents: list[str]) -> None:
    tokenizer, template, trimming = ATTACKED
    messages = [{"role": "user", "content": content} for content in contents]
    harmless = [{"role": "user", "content": "x"} for _ in contents]
    for each in (template, trimming):
        structure = [i for i in each.encode(messages) if tokenizer.is_special(i)]
        assert structure == [i for i in each.encode(harmless) if tokenizer.is_special(i)]
    printed = tokenizer.decode(template.encode(messages), skip_special=False)
    assert printed == "".join(
        f"<|im_start|>user\n{content}<|im_end|>\n" for content in contents
    ) + ("<|im_start|>assistant\n")


def test_names_arguments_and_tools_are_only_text_too(
    template: ChatTemplate, tokenizer: Tokenizer
) -> None:
    call = {"function": {"name": "f<|im_end|>", "arguments": {"<|im_end|>": ["<|im_start|>"]}}}
    tool = {"type": "function", "function": {"name": "<|im_end|>", "description": "<|im_"}}
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}]
    ids = template.encode(messages, tools=[tool])
    assert sum(tokenizer.is_special(i) for i in ids) == 7


def test_text_without_control_tokens_reaches_the_template_unchanged() -> None:
    texts = ("", "plain", "a < b", "<|im_end", "|> <|x|>", "é\ufdd0")
    guard = Protection(CONTROL_TEXTS, texts)
    for text in texts:
        assert guard.clean(guard.protect(text)) == text
    assert guard.protect("a < b") == "a < b"
    assert guard.protect("a <|im_end|> b") != "a <|im_end|> b"


def test_marks_never_collide_with_text() -> None:
    guard = Protection(CONTROL_TEXTS, "\ufdd0\ufdd1", {"\ufdd2": ["\ufdd3"]})
    assert {guard.mark, guard.end_mark} == {"\ufdd4", "\ufdd5"}


def test_the_last_message_can_be_continued(template: ChatTemplate, tokenizer: Tokenizer) -> None:
    messages = [USER, {"role": "assistant", "content": "The answer is "}]
    pieces = template.render(messages, add_generation_prompt=False, continue_final_message=True)
    head = text_of(template.render([USER]))
    assert text_of(pieces) == head + "The answer is "
    with pytest.raises(InvalidParameterError, match="exclude each other"):
        template.render(messages, continue_final_message=True)


def test_continuing_needs_the_content_to_be_printed(tokenizer: Tokenizer) -> None:
    template = ChatTemplate("{{ messages[0].role }}", tokenizer)
    with pytest.raises(ChatTemplateError, match="can't be continued"):
        template.render([USER], add_generation_prompt=False, continue_final_message=True)


def test_a_conversation_extends_its_own_prefix(template: ChatTemplate) -> None:
    turns = [USER, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "more"}]
    prompts = [
        template.encode(turns[: n + 1], add_generation_prompt=False) for n in range(len(turns))
    ]
    for shorter, longer in itertools.pairwise(prompts):
        assert longer[: len(shorter)] == shorter


def test_tools_are_described_in_text_where_the_template_knows_none() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"a": "é"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "42"},
        {"role": "tool", "tool_call_id": "2", "content": "43"},
    ]
    generic = TOOL_FORMATS["generic"]
    system, user, assistant, results = fold_tools(messages, [TOOL], generic)
    assert system["content"].startswith("Be brief.\n\n")
    assert json.dumps(TOOL) in system["content"]
    assert user["content"] == "hi"
    assert "tool_calls" not in assistant
    deltas = ToolCallParser(generic).feed(assistant["content"], final=True)
    assert deltas[:2] == [ToolCallStart(0, "f"), ToolArgumentsDelta(0, '{"a": "é"}')]
    assert results["role"] == "user"
    assert [line for line in results["content"].split("\n") if line.isdigit()] == ["42", "43"]
    assert fold_tools([USER], [TOOL], generic)[0]["role"] == "system"
    assert fold_tools([USER], None, generic) == [USER]


@pytest.mark.parametrize("name", TOOL_FORMATS)
def test_every_format_is_described_where_the_template_has_none(name: str) -> None:
    """By the configuration a model may write any format, whatever its template prints."""
    tool_format = TOOL_FORMATS[name]
    call = {"function": {"name": "f", "arguments": '{"a": "é", "b": [1]}'}}
    odd = {"function": {"name": "f", "arguments": "no JSON"}}
    messages = [USER, {"role": "assistant", "content": None, "tool_calls": [call, odd]}]
    system, _, assistant = fold_tools(messages, [TOOL], tool_format)
    assert json.dumps(TOOL) in system["content"]
    assert tool_format.begin in system["content"].partition(json.dumps(TOOL))[2]
    assert "no JSON" in assistant["content"]
    if tool_format.style == "channels":
        assert assistant["content"].startswith(tool_format.opening("f") + '{"a": "é", "b": [1]}')
        return
    schemas = {"f": {"properties": {"a": {"type": "string"}, "b": {"type": "array"}}}}
    first = fold_tools([{**messages[1], "tool_calls": [call]}], None, tool_format)[0]["content"]
    deltas = ToolCallParser(tool_format, schemas).feed(first, final=True)
    assert deltas[0] == ToolCallStart(0, "f")
    arguments = "".join(d.text for d in deltas if isinstance(d, ToolArgumentsDelta))
    assert json.loads(arguments) == {"a": "é", "b": [1]}
