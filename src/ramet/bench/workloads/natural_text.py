"""Loads of natural text, whose outputs end where the model ends them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar

from ramet.bench.job import Job, Message, Messages
from ramet.bench.workloads.base import Option, PacedLoad, RandomTokens
from ramet.lang.base.errors import UsageError

PROMPTS = Path(__file__).with_name("prompts.jsonl")
"""64 prompts written for this bench: chat, code, extraction and summaries."""

SYSTEM_PROMPTS = (
    "You are a helpful assistant. Answer in a few short paragraphs, and say when you are unsure.",
    "You are a patient teacher. Explain one idea at a time, give an example for each, and avoid "
    "words that need explaining themselves.",
    "You are an editor. You write plainly, in short sentences, without lists unless asked.",
)

FOLLOW_UPS = (
    "Can you say that more simply?",
    "Give me an example.",
    "What is the most common mistake there?",
    "Summarise what you have said in one sentence.",
    "And what would you do in my place?",
    "Why is that so?",
)

MaxOutputLen = Annotated[int, Option("Most tokens of each output.")]


@dataclass(frozen=True, kw_only=True)
class Chat(PacedLoad):
    """Natural text: chats of several turns on everyday questions, code, extraction, summaries."""

    name: ClassVar[str] = "chat"
    requests: Annotated[int, Option("Number of chats.")] = 16
    turns: Annotated[int, Option("Turns of each chat.")] = 2
    output_len: MaxOutputLen = 96
    think_s: Annotated[float, Option("Seconds between an answer and the next turn.", 0)] = 0.0
    prompts: Annotated[
        Path | None,
        Option("Own first turns: JSON lines with prompt or messages, or one text a line."),
    ] = None

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del tokens
        rng = random.Random(f"{seed}/chat")
        own = read_prompts(self.prompts or PROMPTS)
        for number in range(self.requests):
            messages = own[number % len(own)]
            if self.prompts is None:
                system = Message("system", SYSTEM_PROMPTS[number % len(SYSTEM_PROMPTS)])
                messages = (system, *messages)
            yield Job(messages, self.output_len)
        for turn in range(1, self.turns):
            for number in range(self.requests):
                question = (Message("user", rng.choice(FOLLOW_UPS)),)
                after = (turn - 1) * self.requests + number
                yield Job(question, self.output_len, after=after, delay_s=self.think_s)


@cache
def read_prompts(path: Path) -> Sequence[Messages]:
    """The prompts of a file: JSON lines with ``prompt`` or ``messages``, or plain lines of text.

    Raises:
        UsageError: the file can't be read, is empty, or a line has neither.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the prompts of {path}: {error}") from None
    found = [
        read_prompt(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    if not found:
        raise UsageError(f"there are no prompts in {path}")
    return found


def read_prompt(line: str, place: str) -> Messages:
    """The messages of one line.

    Raises:
        UsageError: it is a JSON object without a usable ``prompt`` or ``messages``.
    """
    if not line.lstrip().startswith("{"):
        return (Message("user", line),)
    try:
        record = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{place}: not valid JSON: {error}") from None
    return messages_of(record, place)


def messages_of(record: dict[str, object], place: str) -> Messages:
    """The messages of a record with ``prompt`` or ``messages``.

    Raises:
        UsageError: it has neither, or one that isn't text.
    """
    match record:
        case {"prompt": str(prompt)} if prompt:
            return (Message("user", prompt),)
        case {"messages": [_, *_] as messages}:
            return tuple(_message(each, place) for each in messages)
        case _:
            raise UsageError(f"{place}: neither a text 'prompt' nor a list 'messages'")


def _message(record: object, place: str) -> Message:
    match record:
        case {"role": str(role), "content": str(content)}:
            return Message(role, content)
        case _:
            raise UsageError(f"{place}: a message without a text 'role' and 'content'")
