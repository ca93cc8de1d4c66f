"""Loads of random token ids: exact in their lengths and in what they share.

Random tokens repeat nothing, so speculative decoding gains nothing from them, and outputs are as
long as asked for. For rates that users see, measure natural text too (``chat``, ``trace``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from ramet.bench.job import Job, Pace
from ramet.bench.workloads.base import Load, Option, OutputLen, PacedLoad, RandomTokens

PERSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
        "role": {"type": "string", "enum": ["engineer", "designer", "manager", "analyst"]},
        "skills": {
            "type": "array",
            "items": {"type": "string", "maxLength": 20},
            "maxItems": 3,
        },
        "remote": {"type": "boolean"},
    },
    "required": ["name", "age", "role", "skills", "remote"],
    "additionalProperties": False,
}

VERDICT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 80},
        "score": {"type": "integer", "minimum": 1, "maximum": 10},
    },
    "required": ["reason", "score"],
    "additionalProperties": False,
}

PromptLen = Annotated[int, Option("Tokens of each prompt.")]
PrefixLen = Annotated[int, Option("Tokens of each shared prefix.")]
SuffixLen = Annotated[int, Option("Tokens that each request adds to what it shares.")]
Groups = Annotated[int, Option("Number of shared prefixes.")]


@dataclass(frozen=True, kw_only=True)
class OneStream(Load):
    """One request: the time of a single output."""

    name: ClassVar[str] = "one-stream"
    prompt_len: PromptLen = 128
    output_len: OutputLen = 128

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        yield Job(tokens(self.prompt_len, self.name), self.output_len)

    def pace(self) -> Pace:
        return Pace(concurrency=1)


@dataclass(frozen=True, kw_only=True)
class LongPrompt(OneStream):
    """One request with a long prompt: its time to the first token."""

    name: ClassVar[str] = "long-prompt"
    prompt_len: PromptLen = 512
    output_len: OutputLen = 2


@dataclass(frozen=True, kw_only=True)
class Burst(Load):
    """Requests that share nothing and all arrive at once."""

    name: ClassVar[str] = "burst"
    requests: Annotated[int, Option("Number of requests.")] = 16
    prompt_len: PromptLen = 128
    output_len: OutputLen = 128

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        for number in range(self.requests):
            yield Job(tokens(self.prompt_len, self.name, number), self.output_len)

    def pace(self) -> Pace:
        return Pace(concurrency=self.requests)


@dataclass(frozen=True, kw_only=True)
class SharedPrefix(PacedLoad):
    """Long prefixes, each shared by several requests with a suffix of their own."""

    name: ClassVar[str] = "shared-prefix"
    groups: Groups = 1
    per_group: Annotated[int, Option("Requests that share a prefix.")] = 32
    prefix_len: PrefixLen = 1024
    suffix_len: SuffixLen = 32
    output_len: OutputLen = 32

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        prefixes = [tokens(self.prefix_len, "prefix", group) for group in range(self.groups)]
        for number in range(self.per_group):
            for group, prefix in enumerate(prefixes):
                suffix = tokens(self.suffix_len, "suffix", group, number)
                yield Job(prefix + suffix, self.output_len)


@dataclass(frozen=True, kw_only=True)
class MultiTurn(PacedLoad):
    """Chats: each turn continues the last prompt and its output."""

    name: ClassVar[str] = "multi-turn"
    chats: Annotated[int, Option("Number of chats.")] = 8
    turns: Annotated[int, Option("Turns of a chat.")] = 4
    prefix_len: Annotated[int, Option("Tokens of the first turn.")] = 512
    suffix_len: SuffixLen = 32
    output_len: OutputLen = 32

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        for turn in range(self.turns):
            length = self.suffix_len if turn else self.prefix_len
            for chat in range(self.chats):
                after = (turn - 1) * self.chats + chat if turn else None
                yield Job(tokens(length, "turn", turn, chat), self.output_len, after=after)


@dataclass(frozen=True, kw_only=True)
class Agents(PacedLoad):
    """Tool loops: agents with the same long instructions wait for a tool after each turn."""

    name: ClassVar[str] = "agents"
    agents: Annotated[int, Option("Number of agents.")] = 8
    turns: Annotated[int, Option("Calls of the model per agent.")] = 5
    prefix_len: Annotated[int, Option("Tokens of the instructions and tools.")] = 1024
    suffix_len: Annotated[int, Option("Tokens of each tool's result.")] = 64
    output_len: OutputLen = 32
    tool_s: Annotated[float, Option("Seconds that a tool takes.", 0)] = 0.5

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        instructions = tokens(self.prefix_len, "instructions")
        for agent in range(self.agents):
            task = tokens(self.suffix_len, "task", agent)
            yield Job(instructions + task, self.output_len)
        for turn in range(1, self.turns):
            for agent in range(self.agents):
                result = tokens(self.suffix_len, "result", turn, agent)
                after = (turn - 1) * self.agents + agent
                yield Job(result, self.output_len, after=after, delay_s=self.tool_s)


@dataclass(frozen=True, kw_only=True)
class Judge(PacedLoad):
    """Documents, each judged by several criteria with a verdict in JSON."""

    name: ClassVar[str] = "judge"
    documents: Annotated[int, Option("Number of documents.")] = 4
    criteria: Annotated[int, Option("Questions about each document.")] = 8
    prefix_len: Annotated[int, Option("Tokens of a document.")] = 768
    suffix_len: Annotated[int, Option("Tokens of a question.")] = 48

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        for number in range(self.documents):
            document = tokens(self.prefix_len, "document", number)
            for criterion in range(self.criteria):
                question = tokens(self.suffix_len, "criterion", criterion)
                yield Job(document + question, 200, VERDICT_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class Tree(PacedLoad):
    """Tree of thought: every output is continued in several ways."""

    name: ClassVar[str] = "tree"
    trees: Annotated[int, Option("Number of trees.")] = 2
    branches: Annotated[int, Option("Continuations of each output.")] = 3
    depth: Annotated[int, Option("Levels below the first.", 0)] = 2
    prefix_len: Annotated[int, Option("Tokens of the problem.")] = 512
    suffix_len: SuffixLen = 24
    output_len: OutputLen = 32

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        level = range(self.trees)
        for tree in level:
            yield Job(tokens(self.prefix_len, "problem", tree), self.output_len)
        for depth in range(1, self.depth + 1):
            for parent in level:
                for branch in range(self.branches):
                    thought = tokens(self.suffix_len, "thought", depth, parent, branch)
                    yield Job(thought, self.output_len, after=parent)
            level = range(level.stop, level.stop + len(level) * self.branches)


@dataclass(frozen=True, kw_only=True)
class FewShot(PacedLoad):
    """Short answers to questions that all begin with the same worked examples."""

    name: ClassVar[str] = "fewshot"
    requests: Annotated[int, Option("Number of questions.")] = 64
    prefix_len: Annotated[int, Option("Tokens of the examples.")] = 1024
    suffix_len: Annotated[int, Option("Tokens of a question.")] = 32
    output_len: OutputLen = 4

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        examples = tokens(self.prefix_len, "examples")
        for number in range(self.requests):
            yield Job(examples + tokens(self.suffix_len, "question", number), self.output_len)


@dataclass(frozen=True, kw_only=True)
class Json(PacedLoad):
    """Outputs that a JSON schema constrains, at most 200 tokens each."""

    name: ClassVar[str] = "json"
    requests: Annotated[int, Option("Number of requests.")] = 32
    prompt_len: PromptLen = 64

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        for number in range(self.requests):
            yield Job(tokens(self.prompt_len, self.name, number), 200, PERSON_SCHEMA)


@dataclass(frozen=True, kw_only=True)
class FreeText(PacedLoad):
    """Like json, without a schema: what the constraint costs is the difference."""

    name: ClassVar[str] = "free-text"
    requests: Annotated[int, Option("Number of requests.")] = 32
    prompt_len: PromptLen = 64
    output_len: OutputLen = 64

    def jobs(self, seed: str, tokens: RandomTokens) -> Iterator[Job]:
        del seed
        for number in range(self.requests):
            yield Job(tokens(self.prompt_len, self.name, number), self.output_len)
