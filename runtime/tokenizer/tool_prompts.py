"""Tools for models whose chat template knows none: described in the text of the messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ramet.runtime.parsers.tool_formats import ToolFormat
from ramet.runtime.tokenizer.messages import Message, normalise_messages


def fold_tools(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    tool_format: ToolFormat,
) -> list[dict[str, Any]]:
    """The same conversation in messages that any chat template can print.

    The tools and how to call them go to the end of the system message, or into one of their own;
    calls become text of the assistant's, as ``tool_format`` writes them; neighbouring results
    become one user message.
    """
    folded: list[dict[str, Any]] = []
    was_result = False
    for message in normalise_messages(messages):
        is_result = message["role"] == "tool"
        if not is_result:
            folded.append(_with_calls_as_text(message, tool_format))
        else:
            text = tool_format.result.replace("{}", message["content"])
            if was_result:
                folded[-1]["content"] += "\n" + text
            else:
                folded.append({"role": "user", "content": text})
        was_result = is_result
    if tools:
        _instruct(folded, tool_format.instruct(tools))
    return folded


def _with_calls_as_text(message: dict[str, Any], tool_format: ToolFormat) -> dict[str, Any]:
    calls = [each["function"] for each in message.pop("tool_calls", ())]
    texts = [message["content"]] if message["content"] else []
    if calls:
        texts.append(tool_format.calls((each["name"], each["arguments"]) for each in calls))
    return {**message, "content": "\n".join(texts)}


def _instruct(folded: list[dict[str, Any]], instructions: str) -> None:
    if folded[0]["role"] in ("system", "developer"):
        before = folded[0]["content"]
        folded[0]["content"] = f"{before}\n\n{instructions}" if before else instructions
    else:
        folded.insert(0, {"role": "system", "content": instructions})
