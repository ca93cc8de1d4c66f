"""Promised: the grammar of a format allows what the format writes, and no invalid arguments."""

from __future__ import annotations

import pytest

from ramet.grammars import Vocabulary, compile_constraint
from ramet.grammars.constraints import StructuralTag
from ramet.runtime.chat.param_paths import Origins
from ramet.runtime.chat.tool_grammar import ToolGrammar
from ramet.runtime.chat.tool_schemas import ToolSchema
from ramet.runtime.parsers import TOOL_FORMATS

BYTES = Vocabulary.from_tokens([*(bytes([i]) for i in range(256)), None], {256})
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "b": {"type": "integer"},
        "c": {"type": "boolean"},
        "d": {"enum": ["x", "y"]},
    },
    "required": ["a"],
    "additionalProperties": False,
}
RIGHT = [("f", {"a": 'it "is" ü', "b": 3, "c": True, "d": "y"}), ("f", {"a": "z"})]
WRONG = [{"a": "z", "b": "no"}, {"b": 1}, {"a": "z", "d": "w"}, {"a": "z", "e": 1}]


@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("name", sorted(set(TOOL_FORMATS) - {"harmony"}))
def test_written_calls_are_allowed_and_invalid_ones_are_not(name: str, choice: str) -> None:
    tool_format = TOOL_FORMATS[name]
    grammar = ToolGrammar(tool_format, {"f": ToolSchema(SCHEMA, "tools[0]")}, Origins("tools"))
    calls = grammar.calls(choice, parallel=True, has_answer=False)
    compiled = compile_constraint(StructuralTag(calls), BYTES)
    assert compiled.match(tool_format.calls(RIGHT, {"f": SCHEMA})).accepted
    for arguments in WRONG:
        text = tool_format.calls([("f", arguments)], {"f": SCHEMA})
        assert not compiled.match(text).accepted, text
