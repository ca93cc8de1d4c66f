"""Measures the effect of white space and key order on answers: extraction with known values.

    python benchmarks/models/json_style.py [--model smollm2] [--tasks 60]

Each task is a short text made from known values and a schema of four properties; the answer is
generated greedily under the schema, in one of several styles:

- white space: none (``{"a":1,"b":2}``), free (at most one space, where the model wants one), spaced
  (``{"a": 1, "b": 2}``, as ``json.dumps`` writes it);
- keys: in the schema's order, or in any.

Printed: how many values are right, how many answers are right as a whole, in how many tasks only
this style or only the first one is wholly right, tokens an answer, and CPU time over the first
style's. The prompt of a task is computed before, so time is that of its answer and its grammar.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any

from ramet.grammars import Constraint, Ebnf, JsonSchema
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.engine import Engine
from ramet.runtime.tokenizer.chat_template import ChatTemplate

NAMES = ("Ann Lee", "Boris Novak", "Chidi Okoro", "Dana Weiss", "Elif Kaya", "Femi Ade", "Gus Hill")
CITIES = ("Lisbon", "Osaka", "Quito", "Tunis", "Oslo", "Perth", "Cork", "Lyon")
ITEMS = ("lamp", "bicycle", "teapot", "radio", "chair", "tent", "camera", "violin")
COLOURS = ("red", "green", "blue", "black", "white")


@dataclass(frozen=True)
class Task:
    """A text, the properties asked for with their types, and the right values."""

    text: str
    types: dict[str, str]
    values: dict[str, Any]


def make_task(rng: random.Random) -> Task:
    name, city, item = rng.choice(NAMES), rng.choice(CITIES), rng.choice(ITEMS)
    number, colour, is_paid = rng.randrange(2, 90), rng.choice(COLOURS), rng.random() < 0.5
    texts = (
        (
            f"{name}, who is {number} years old, moved to {city} last spring and works as a cook.",
            {"name": name, "age": number, "city": city, "job": "cook"},
        ),
        (
            f"Order: {number} pieces of a {colour} {item}, to be sent to {city}. "
            f"It has {'already' if is_paid else 'not yet'} been paid.",
            {"item": item, "colour": colour, "quantity": number, "paid": is_paid},
        ),
        (
            f"In {city} a {colour} {item} was found. {name} can fetch it in room {number}.",
            {"item": item, "city": city, "owner": name, "room": number},
        ),
    )
    text, values = rng.choice(texts)
    keys = list(values)
    rng.shuffle(keys)
    kinds = {str: "string", int: "integer", bool: "boolean"}
    return Task(text, {key: kinds[type(values[key])] for key in keys}, values)


def schema_of(task: Task) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in task.types.items()},
        "required": list(task.types),
        "additionalProperties": False,
    }


def spaced(task: Task, *, any_order: bool) -> Ebnf:
    """The schema's texts as ``json.dumps`` writes them."""
    pairs = [rf'"\"{key}\": " {kind}' for key, kind in task.types.items()]
    orders = itertools.permutations(pairs) if any_order else [pairs]
    bodies = [' ", " '.join(order) for order in orders]
    return Ebnf(
        'root ::= "{" (' + " | ".join(bodies) + ') "}"\n'
        r'string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrt] | "\\u" [0-9a-f]{4})* "\""'
        '\ninteger ::= "-"? ("0" | [1-9] [0-9]{0,18})\nboolean ::= "true" | "false"'
    )


def constraint_of(task: Task, space: str, *, any_order: bool) -> Constraint:
    if space == "spaced":
        return spaced(task, any_order=any_order)
    return JsonSchema(
        schema_of(task),
        whitespace="none" if space == "none" else "compact",
        any_order=any_order,
        integers="plain",
    )


@dataclass
class Score:
    """Sums over tasks."""

    right: int = 0
    values: int = 0
    tokens: int = 0
    seconds: float = 0.0
    whole: list[bool] = field(default_factory=list)


def prompt_of(template: ChatTemplate, task: Task) -> list[int]:
    asked = json.dumps(list(task.types))
    return template.encode(
        [{"role": "user", "content": f"{task.text}\n\nGive {asked} of this text as JSON."}],
        add_generation_prompt=True,
    )


def run(engine: Engine, template: ChatTemplate, tasks: list[Task], space: str, order: str) -> Score:
    score = Score()
    for task in tasks:
        prompt = prompt_of(template, task)
        constraint = constraint_of(task, space, any_order=order == "any")
        begin = time.process_time()
        params = SamplingParams(max_tokens=120, temperature=0.0)
        done = engine.generate(prompt, params, constraint=constraint)
        score.seconds += time.process_time() - begin
        score.tokens += done.usage.completion_tokens
        try:
            answer = json.loads(done.text)
        except ValueError:
            answer = {}  # It ran into max_tokens.
        hits = [answer.get(key) == value for key, value in task.values.items()]
        score.right += sum(hits)
        score.values += len(hits)
        score.whole.append(all(hits))
    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tasks", type=int, default=60)
    options = parser.parse_args()
    rng = random.Random(1)
    tasks = [make_task(rng) for _ in range(options.tasks)]
    styles = list(itertools.product(("none", "free", "spaced"), ("schema", "any")))
    with Engine.from_model(options.model) as engine:
        template = ChatTemplate.of(engine.tokenizer)
        run(engine, template, tasks[:2], "spaced", "any")
        scores = {style: Score() for style in styles}
        # One task in all styles, then the next: neighbours on the machine disturb all alike.
        for task in tasks:
            engine.generate(prompt_of(template, task), SamplingParams(max_tokens=1))
            for style in styles:
                one = run(engine, template, [task], *style)
                total = scores[style]
                total.right += one.right
                total.values += one.values
                total.tokens += one.tokens
                total.seconds += one.seconds
                total.whole += one.whole
    first = scores[styles[0]]
    print(f"{options.model}, {len(tasks)} tasks, {first.values} values\n")
    print("| space | keys | values right | wholly right | only here, only there | tokens | time |")
    print("|---|---|---|---|---|---|---|")
    for (space, order), score in scores.items():
        here = sum(a and not b for a, b in zip(score.whole, first.whole, strict=True))
        there = sum(b and not a for a, b in zip(score.whole, first.whole, strict=True))
        print(
            f"| {space} | {order} | {score.right / score.values:.1%} "
            f"| {sum(score.whole) / len(tasks):.1%} | {here}, {there} "
            f"| {score.tokens / len(tasks):.1f} | {score.seconds / first.seconds:.2f} |"
        )


if __name__ == "__main__":
    main()
