"""Agent loops with many tools: what do tools at the head of the conversation save?

::

    python benchmarks/programs/tools.py [--tools 20] [--questions 10]

A loop of ``--questions`` questions, each with a call of one of ``--tools`` tools and an answer, on
the bundled model under a chat template that prints tools. ``text`` describes the tools behind each
question, and the model writes one JSON object a turn (what a template without tools gets);
``template`` has them printed by the template, and calls in its format. Each question is a run of
its own; ``template`` also runs with all questions in one conversation, in which ``text`` would
describe the tools again for each of them, beyond the model's context. Printed are the tokens
computed per question (prompt tokens that weren't in the prefix cache, and those generated), and of
these the prompt's.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table

from ramet.lang import AgentLimits, State, Tool, describe_tools, program
from ramet.lang.backends.engine import EngineBackend
from ramet.runtime.api.events import Usage
from ramet.runtime.engine import Engine, EngineConfig

TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\nYou call functions.\\n<tools>\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{% endfor %}
{{- '</tools>\\nFor each call write\\n<tool_call>\\n{"name": ..., "arguments": ...}\\n' }}
{{- '</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""

TOPICS = ("weather", "news", "stock", "train", "flight", "hotel", "book", "film", "recipe", "map")


def make_tools(num_tools: int) -> list[Tool[..., Any]]:
    """Tools with descriptions and a few parameters each."""
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "day": {"enum": ["today", "tomorrow"]},
        },
        "required": ["city", "day"],
    }
    return [
        Tool(
            lambda city, day: f"Nothing special in {city} {day}.",
            name=f"{TOPICS[index % len(TOPICS)]}_{index // len(TOPICS)}",
            description=f"Finds what is known of a city's {TOPICS[index % len(TOPICS)]} on a day.",
            parameters=schema,
        )
        for index in range(num_tools)
    ]


def ask(s: State, number: int, tools: list[Tool[..., Any]], *, as_text: bool) -> None:
    """One question of the loop: a turn with a call, and one that answers."""
    question = f"Question {number}: what is the {TOPICS[number % len(TOPICS)]} in Rome today?"
    s.user(f"{question}\n\n{describe_tools(tools)}" if as_text else question)
    limits = AgentLimits(max_turns=2, max_calls_a_turn=1)
    options: dict[str, Any] = {"require_call": True, "limits": limits, "max_tokens": 48}
    s.tools(tools, name=f"answer{number}", instructions=not as_text, **options).value  # noqa: B018  waits


@program
def conversation(s: State, numbers: list[int], tools: Any, *, as_text: bool) -> None:
    """All questions in one conversation."""
    s.system("You are brief.")
    for number in numbers:
        ask(s, number, tools, as_text=as_text)


def run_arm(num_tools: int, num_questions: int, *, as_text: bool, in_one: bool) -> list[Usage]:
    """The usage of each call of an arm, on an engine of its own with an empty cache."""
    tools, numbers = make_tools(num_tools), list(range(num_questions))
    groups = [numbers] if in_one else [[number] for number in numbers]
    with tempfile.NamedTemporaryFile("w", suffix=".jinja") as file:
        file.write(TEMPLATE)
        file.flush()
        engine = Engine.from_model("smollm2", EngineConfig(chat_template=file.name))
    try:
        backend = EngineBackend(engine)
        usages: list[Usage] = []
        for group in groups:
            run = conversation.run(group, tools, as_text=as_text, backend=backend, temperature=0.0)
            usages += [call.usage for call in run.trace.calls if call.kind == "gen"]
    finally:
        engine.close()
    return usages


def main() -> None:
    """Runs all arms and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tools", type=int, default=20)
    parser.add_argument("--questions", type=int, default=10)
    options = parser.parse_args()
    table = Table("questions", "tools", "prompt tokens", "computed a question", "of the prompt")
    for as_text, in_one in ((True, False), (False, False), (False, True)):
        usages = run_arm(options.tools, options.questions, as_text=as_text, in_one=in_one)
        prompt = sum(usage.prompt_tokens for usage in usages)
        new = prompt - sum(usage.cached_tokens for usage in usages)
        written = sum(usage.completion_tokens for usage in usages)
        table.add_row(
            "one conversation" if in_one else "a run each",
            "text" if as_text else "template",
            f"{prompt / options.questions:.0f}",
            f"{(new + written) / options.questions:.0f}",
            f"{new / options.questions:.0f}",
        )
        Console().print(table)


if __name__ == "__main__":
    main()
